package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMonitorSetKeepsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told recorder
		m := New(Options{Notify: told.notify})
		kept := &fake{name: "kept", check: script("-")}
		gone := &fake{name: "gone"}
		set(t, m, kept, gone)
		run(t, m)
		time.Sleep(5 * time.Second)
		// Just after a run: a start of the new one may bring the next one forward.
		for n := len(kept.started()); len(kept.started()) == n; {
			time.Sleep(time.Millisecond)
		}
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
					if !errors.Is(ctx.Err(), context.Canceled) {
						t.Errorf("want the run stopped by Set, got %v", ctx.Err())
					}
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

// TestMonitorRecall begins with what a target said to another Monitor: that holds
// while an advisory probe fails and when its timing changes, and ends with what the
// target says, or with the first result of another probe.
func TestMonitorRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		agent, check := &fake{name: "agent", check: script("-")}, &fake{name: "check", check: script("-")}
		a, c := probeOf(agent), probeOf(check)
		a.Advisory = true
		if err := m.Set([]Probe{a, c}); err != nil {
			t.Fatal(err)
		}
		said := Advice{Weight: Weight{WeightPercent, 50}, Admin: SaysDrain}
		m.Recall(func(p *Probe) Advice {
			bad := said
			bad.Health = 99
			return bad
		})
		a.Interval *= 2
		if err := m.Set([]Probe{a, c}); err != nil {
			t.Fatal(err)
		}
		want := func(p Probe, want Advice) {
			t.Helper()
			if s, _ := m.Status(p.Key()); s.Advice != want {
				t.Errorf("%s: want %+v, got %+v", p.Key(), want, s.Advice)
			}
		}
		want(a, said)
		want(c, said)
		run(t, m)
		time.Sleep(5 * time.Second)
		want(a, said)
		want(c, Advice{})
		agent.become(func(context.Context) (Result, error) { return Result{Advice: Advice{Admin: SaysReady}}, nil })
		time.Sleep(5 * time.Second)
		want(a, Advice{Weight: said.Weight, Admin: SaysReady})
	})
}

// TestMonitorSetThroughAnother has one target probed through another service, and in
// a tunnel: what was found on one way says nothing of the others.
func TestMonitorSetThroughAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		p := probeOf(&fake{name: "f", check: script("-")})
		service := netip.MustParseAddr("198.51.100.1")
		ways := []Through{{}, {Service: service}, {Service: service, Tunnel: true}, {Service: service.Next()}}
		var probes []Probe
		for i, way := range ways {
			p.Through = way
			probes = append(probes, p)
			// Not Status after Set: the first check may have ended by then.
			if s := m.Foresee(probes)[p.Key()]; s.State != Pending || s.Checks != 0 {
				t.Errorf("%+v: want nothing known, got %+v", way, s)
			}
			if err := m.Set(probes); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				run(t, m)
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if s, _ := m.Status(p.Key()); s.State != Down {
				t.Errorf("%+v: want Down, got %+v", way, s)
			}
		}
	})
}

// TestMonitorForesee compares what was foreseen with what came: of probes that stay,
// that are edited, and that are new, with and without a state to start with.
func TestMonitorForesee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		up, down := &fake{name: "up", check: script("+")}, &fake{name: "down", check: script("-")}
		set(t, m, up, down)
		stop := run(t, m)
		time.Sleep(5 * time.Second)
		stop() // a first check could come before the look at what was set
		edited, fresh, waits := probeOf(down), probeOf(&fake{name: "new"}), probeOf(&fake{name: "waits"})
		edited.Rise, waits.Start = 5, Down
		probes := []Probe{probeOf(up), edited, fresh, waits}
		foreseen := m.Foresee(probes)
		if _, ok := m.Status(edited.Key()); ok {
			t.Error("the probe is there already")
		}
		if err := m.Set(probes); err != nil {
			t.Fatal(err)
		}
		for i, want := range []State{Up, Down, Pending, Down} {
			key := probes[i].Key()
			s, _ := m.Status(key)
			if f := foreseen[key]; s.State != want || f.State != want || f.Checks != s.Checks || f.Failures != s.Failures {
				t.Errorf("%s: want %v, foreseen %+v, got %+v", key, want, f, s)
			}
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

// TestMonitorConcurrentUse has several goroutines change and read the probes
// while they run; the race detector looks on.
func TestMonitorConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{Parallel: 5, Notify: func(Change) {}})
		var fakes []*fake
		for i := range 40 {
			fakes = append(fakes, &fake{name: fmt.Sprint(i), check: script("+-+--")})
		}
		stop := run(t, m)
		var users sync.WaitGroup
		for u := range 4 {
			users.Go(func() {
				for i := range 100 {
					from := (u*7 + i*3) % 20
					set(t, m, fakes[from:from+20]...)
					for key, s := range m.Snapshot() {
						if s.Failures > s.Checks {
							t.Errorf("%s: got %+v", key, s)
						}
					}
					m.Status(probeOf(fakes[from]).Key())
					if s := m.Stats(); s.Running > 5 {
						t.Errorf("want 5 places, got %+v", s)
					}
					time.Sleep(time.Duration(i%5) * 100 * time.Millisecond)
				}
			})
		}
		users.Wait()
		set(t, m, fakes...)
		time.Sleep(10 * time.Second)
		for _, f := range fakes {
			wantState(t, m, f, Down)
		}
		stop()
		if s := m.Stats(); s.Running != 0 || s.Probes != len(fakes) {
			t.Errorf("after Run: got %+v", s)
		}
	})
}
