package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMonitorStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told recorder
		m := New(Options{Notify: told.notify})
		good := &fake{name: "good"}
		bad := &fake{name: "bad", check: script("-")}
		flap := &fake{name: "flap", check: script("+---++-")}
		set(t, m, good, bad, flap)
		wantState(t, m, good, Pending)
		run(t, m)
		time.Sleep(10 * time.Second)
		if s := wantState(t, m, good, Up); s.Last.Detail != "" || s.Failures != 0 || s.Generation != 1 {
			t.Errorf("good: got %+v", s)
		}
		if s := wantState(t, m, bad, Down); !errors.Is(s.LastErr, errFake) || s.Failures != s.Checks {
			t.Errorf("bad: got %+v", s)
		}
		wantState(t, m, flap, Down)
		for f, want := range map[*fake][]State{good: {Up}, bad: {Down}, flap: {Up, Down, Up, Down}} {
			if diff := cmp.Diff(want, told.states(f)); diff != "" {
				t.Errorf("%s: notified (-want +got):\n%s", f.name, diff)
			}
		}
	})
}

// TestMonitorDetection measures the promise of the package comment: the time
// from the failure of a target to Down.
func TestMonitorDetection(t *testing.T) {
	for _, timing := range []Timing{
		{Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1},
		{Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 3},
		{Interval: 2 * time.Second, Timeout: 100 * time.Millisecond, Rise: 1, Fall: 5},
	} {
		t.Run(fmt.Sprintf("%+v", timing), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 200
				var told recorder
				var dead atomic.Bool
				m := New(Options{Notify: told.notify})
				var probes []Probe
				for i := range n {
					p := probeOf(&fake{name: fmt.Sprint(i), check: func(ctx context.Context) (Result, error) {
						if dead.Load() {
							return hang(ctx)
						}
						return Result{}, nil
					}})
					p.Timing = timing
					probes = append(probes, p)
				}
				if err := m.Set(probes); err != nil {
					t.Fatal(err)
				}
				stop := run(t, m)
				time.Sleep(17*time.Second + 300*time.Millisecond)
				dead.Store(true)
				died := time.Now()
				time.Sleep(time.Minute)
				stop()
				bound := time.Duration(timing.Fall)*timing.Interval + timing.Timeout
				down := 0
				for _, c := range told.changes {
					if c.State != Down {
						continue
					}
					down++
					// A late run is noticed by a wake-up of its own, so no slack is
					// needed even here.
					if took := c.Since.Sub(died); took > bound {
						t.Errorf("probe %s: want down within %v, got %v", c.Key, bound, took)
					}
				}
				if down != n {
					t.Errorf("want %d probes down, got %d", n, down)
				}
			})
		})
	}
}

func TestMonitorSharesEqualProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		f := &fake{name: "shared"}
		set(t, m, f, f, f)
		run(t, m)
		time.Sleep(10*time.Second + time.Millisecond)
		if f.made != 1 {
			t.Errorf("want one checker, got %d", f.made)
		}
		if n := len(f.started()); n < 10 || n > 13 {
			t.Errorf("want 10 to 13 checks in 10 s at 1 s, got %d", n)
		}
		if got := len(m.Snapshot()); got != 1 {
			t.Errorf("want one probe, got %d", got)
		}
	})
}

// TestMonitorNoOverlap has checks that end exactly when the next is due.
func TestMonitorNoOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		f := &fake{name: "slow", check: hang}
		p := probeOf(f)
		p.Timeout = p.Interval
		if err := m.Set([]Probe{p}); err != nil {
			t.Fatal(err)
		}
		run(t, m)
		time.Sleep(100*time.Second + 500*time.Millisecond)
		if got := f.peak(); got != 1 {
			t.Errorf("want one run at a time, got %d", got)
		}
		starts := f.started()
		if len(starts) < 100 {
			t.Errorf("want 100 runs in 100 s, got %d", len(starts))
		}
		for i, at := range starts[1:] {
			if gap := at.Sub(starts[i]); gap != time.Second {
				t.Errorf("run %d: want 1s after the one before, got %v", i+1, gap)
			}
		}
	})
}

func TestMonitorHungCheckDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		release := make(chan struct{})
		// This one ignores its context, which a checker must not do.
		stuck := &fake{name: "stuck", check: func(context.Context) (Result, error) {
			<-release
			return Result{}, nil
		}}
		good := &fake{name: "good"}
		set(t, m, stuck, good)
		stop := run(t, m)
		time.Sleep(20 * time.Second)
		if s := wantState(t, m, good, Up); s.Checks < 20 {
			t.Errorf("want 20 checks of the good one in 20 s, got %d", s.Checks)
		}
		// The stuck one is seen as what it is, although it never returned.
		s := wantState(t, m, stuck, Down)
		if !errors.Is(s.LastErr, errOverrun) || s.Checks < 15 || len(stuck.started()) != 1 {
			t.Errorf("stuck: want failures from one run, got %d runs and %+v", len(stuck.started()), s)
		}
		close(release)
		time.Sleep(5 * time.Second)
		wantState(t, m, stuck, Up)
		stop()
	})
}

func TestMonitorSetKeepsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told recorder
		m := New(Options{Notify: told.notify})
		kept := &fake{name: "kept", check: script("-")}
		gone := &fake{name: "gone"}
		set(t, m, kept, gone)
		run(t, m)
		time.Sleep(5 * time.Second)
		before := wantState(t, m, kept, Down)

		added := &fake{name: "added"}
		set(t, m, kept, added)
		after := wantState(t, m, kept, Down)
		if diff := cmp.Diff(before, after, cmp.Comparer(func(a, b error) bool { return a == b })); diff != "" {
			t.Errorf("kept probe changed by Set (-before +after):\n%s", diff)
		}
		if kept.made != 1 {
			t.Errorf("want the checker kept, got %d made", kept.made)
		}
		// Few probes are not spread: it has had its first run already.
		if s := wantState(t, m, added, Up); s.Generation != 2 || s.Checks != 1 {
			t.Errorf("want generation 2 and one check, got %+v", s)
		}
		if _, ok := m.Status(probeOf(gone).Key()); ok {
			t.Error("removed probe still has a status")
		}
		runs := len(gone.started())
		time.Sleep(5 * time.Second)
		wantState(t, m, kept, Down)
		wantState(t, m, added, Up)
		if got := len(gone.started()); got != runs {
			t.Errorf("removed probe ran %d times more", got-runs)
		}
		if diff := cmp.Diff([]State{Down}, told.states(kept)); diff != "" {
			t.Errorf("kept: notified (-want +got):\n%s", diff)
		}
	})
}

// TestMonitorSetKeepsPhase reloads without a change between any two runs: the
// schedule must not move, or frequent reloads would starve the checks.
func TestMonitorSetKeepsPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		f := &fake{name: "kept"}
		set(t, m, f)
		run(t, m)
		for range 200 {
			time.Sleep(100 * time.Millisecond)
			set(t, m, f)
		}
		if n := len(f.started()); n < 20 {
			t.Errorf("want 20 checks in 20 s, got %d", n)
		}
	})
}

func TestMonitorSetDiscardsStaleResult(t *testing.T) {
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprintf("added again %v", back), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told recorder
				m := New(Options{Notify: told.notify})
				var calls atomic.Int32
				f := &fake{name: "slow"}
				f.check = func(ctx context.Context) (Result, error) {
					if calls.Add(1) > 1 {
						return Result{}, nil
					}
					<-ctx.Done() // Set stops the run …
					time.Sleep(100 * time.Millisecond)
					return Result{}, errFake // … but the result comes all the same.
				}
				set(t, m, f)
				run(t, m)
				time.Sleep(100 * time.Millisecond)
				set(t, m)
				if back {
					set(t, m, f)
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				want := []State(nil)
				if back {
					want = []State{Up}
					if s := wantState(t, m, f, Up); s.Failures != 0 || s.Generation != 3 {
						t.Errorf("want a fresh history, got %+v", s)
					}
				}
				if diff := cmp.Diff(want, told.states(f)); diff != "" {
					t.Errorf("notified (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestMonitorSetInherits edits the interval of a probe of a dead server.
func TestMonitorSetInherits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told recorder
		m := New(Options{Notify: told.notify})
		f := &fake{name: "f", check: script("-")}
		set(t, m, f)
		run(t, m)
		time.Sleep(5 * time.Second)
		before := wantState(t, m, f, Down)

		p := probeOf(f)
		p.Rise = 5
		if err := m.Set([]Probe{p}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		after, _ := m.Status(p.Key())
		if after.State != Down || !after.Since.Equal(before.Since) || after.Streak != 1 || after.Generation != 2 {
			t.Errorf("want Down since %v and a new streak, got %+v", before.Since, after)
		}
		last := told.changes[len(told.changes)-1]
		if last.Key != p.Key() || last.State != Down {
			t.Errorf("want Notify told of the new key, got %+v", last)
		}
		f.become(script("+"))
		time.Sleep(3500 * time.Millisecond)
		if s, _ := m.Status(p.Key()); s.State != Down {
			t.Errorf("want rise 5 to hold, got %v after %d checks", s.State, s.Streak)
		}
		time.Sleep(5 * time.Second)
		if s, _ := m.Status(p.Key()); s.State != Up {
			t.Errorf("want Up, got %v", s.State)
		}
	})
}

func TestMonitorSetErrors(t *testing.T) {
	m := New(Options{})
	good := &fake{name: "good"}
	set(t, m, good)
	bad := probeOf(&fake{name: "bad"})
	bad.Fall = 0
	err := m.Set([]Probe{
		{Target: netip.MustParseAddrPort("192.0.2.9:1")},
		bad,
		{Method: TCP{}, Target: netip.MustParseAddrPort("192.0.2.9:0"), Timing: second},
	})
	if err == nil {
		t.Fatal("want an error")
	}
	want := strings.Join([]string{
		"probe of 192.0.2.9:1: no method",
		"probe bad 192.0.2.1:80 interval=1s timeout=500ms rise=2 fall=0: fall 0 is less than 1",
		"probe tcp 192.0.2.9:0 interval=1s timeout=500ms rise=2 fall=3: tcp check of 192.0.2.9: no port",
	}, "\n")
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, ok := m.Status(probeOf(good).Key()); !ok || len(m.Snapshot()) != 1 {
		t.Error("a failed Set changed the probes")
	}
}

func TestMonitorHungNotifyDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var told recorder
		m := New(Options{Notify: func(c Change) {
			<-release
			told.notify(c)
		}})
		var fakes []*fake
		for i := range 50 {
			fakes = append(fakes, &fake{name: fmt.Sprint(i), check: script("+---")})
		}
		flap := &fake{name: "flap", check: script("+---++---++")}
		set(t, m, append(fakes, flap)...)
		run(t, m)
		time.Sleep(20 * time.Second)
		for _, f := range fakes {
			if s := wantState(t, m, f, Down); s.Checks < 20 {
				t.Errorf("%s: want 20 checks in 20 s, got %d", f.name, s.Checks)
			}
		}
		close(release)
		synctest.Wait()
		// The call that hung told one probe's first state; all others are told
		// the newest only.
		for i, f := range append(fakes, flap) {
			states := told.states(f)
			want := Down
			if f == flap {
				want = Up
			}
			if len(states) == 0 || len(states) > 2 || states[len(states)-1] != want {
				t.Errorf("probe %d: want %v last and at most one before, got %v", i, want, states)
			}
		}
	})
}

func TestMonitorNotifyAfterRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var told recorder
		m := New(Options{Notify: func(c Change) {
			told.notify(c)
			<-release
		}})
		a, b := &fake{name: "a"}, &fake{name: "b"}
		set(t, m, a, b)
		run(t, m)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(told.changes) != 1 {
			t.Fatalf("want one call under way, got %d", len(told.changes))
		}
		set(t, m) // b, or a, was waiting to be told of.
		close(release)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(told.changes) != 1 {
			t.Errorf("told of a removed probe: %+v", told.changes[1:])
		}
	})
}

// TestMonitorSetInNotify would deadlock if Notify were called under a lock.
func TestMonitorSetInNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g := &fake{name: "f"}, &fake{name: "g"}
		var m *Monitor
		m = New(Options{Notify: func(c Change) {
			if c.Key == probeOf(f).Key() {
				if err := m.Set([]Probe{probeOf(g)}); err != nil {
					t.Error(err)
				}
			}
		}})
		set(t, m, f)
		run(t, m)
		time.Sleep(2 * time.Second)
		wantState(t, m, g, Up)
	})
}

func TestMonitorStopIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told recorder
		m := New(Options{Notify: told.notify})
		var calls atomic.Int32
		f := &fake{name: "f", check: func(ctx context.Context) (Result, error) {
			if calls.Add(1) == 1 {
				return Result{}, nil
			}
			return hang(ctx)
		}}
		p := probeOf(f)
		p.Fall = 1
		if err := m.Set([]Probe{p}); err != nil {
			t.Fatal(err)
		}
		stop := run(t, m)
		for calls.Load() < 2 {
			time.Sleep(10 * time.Millisecond)
		}
		stop()
		if s, _ := m.Status(p.Key()); s.State != Up || s.Failures != 0 {
			t.Errorf("want the interrupted run forgotten, got %+v", s)
		}
		if err := m.Run(t.Context()); err == nil {
			t.Error("want an error from a second Run")
		}
	})
}

func TestMonitorBrokenChecker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		panics := &fake{name: "panics", check: func(context.Context) (Result, error) { panic("boom") }}
		late := &fake{name: "late", check: func(context.Context) (Result, error) {
			time.Sleep(600 * time.Millisecond)
			return Result{}, nil
		}}
		set(t, m, panics, late)
		run(t, m)
		time.Sleep(5 * time.Second)
		for f, want := range map[*fake]string{
			panics: "the check panicked: boom",
			late:   "the check took longer than 500ms",
		} {
			s := wantState(t, m, f, Down)
			if s.LastErr == nil || s.LastErr.Error() != want {
				t.Errorf("%s: want %q, got %v", f.name, want, s.LastErr)
			}
			if s.Checks < 4 {
				t.Errorf("%s: want it to go on, got %d checks", f.name, s.Checks)
			}
		}
	})
}

func TestMonitorParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{Parallel: 3})
		var running, most atomic.Int32
		check := func(context.Context) (Result, error) {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(20 * time.Millisecond)
			running.Add(-1)
			return Result{}, nil
		}
		var fakes []*fake
		for i := range 100 {
			fakes = append(fakes, &fake{name: fmt.Sprint(i), check: check})
		}
		set(t, m, fakes...)
		stop := run(t, m)
		time.Sleep(5 * time.Second)
		if got := most.Load(); got != 3 {
			t.Errorf("want 3 at once, got %d", got)
		}
		// 3 places serve 150 runs a second, the probes ask for 100 to 111.
		for _, f := range fakes {
			if s := wantState(t, m, f, Up); s.Checks < 3 {
				t.Errorf("%s: want its turns, got %d checks in 5 s", f.name, s.Checks)
			}
		}
		if s := m.Stats(); s.LagMax == 0 || s.LagTotal < s.LagMax {
			t.Errorf("want the wait seen as lag, got %+v", s)
		}
		// Removal of those in line and those that run must leave the places free.
		set(t, m, fakes[:5]...)
		time.Sleep(time.Minute)
		for _, f := range fakes[:5] {
			if n := len(f.started()); n < 60 {
				t.Errorf("%s: want 60 checks in a minute, got %d", f.name, n)
			}
		}
		stop()
		if s := m.Stats(); s.Running != 0 {
			t.Errorf("want nothing running after Run, got %+v", s)
		}
	})
}
