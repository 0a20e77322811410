package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
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
		if s := wantState(t, m, bad, Down); s.LastErr == nil || s.LastErr.Error() != errFake.Error() || s.Failures != s.Checks {
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

// TestMonitorParallelStuck has checkers that ignore their deadline in every place
// there is: the others run all the same.
func TestMonitorParallelStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{Parallel: 2})
		release := make(chan struct{})
		stuck := func(context.Context) (Result, error) {
			<-release
			return Result{}, nil
		}
		s1, s2 := &fake{name: "s1", check: stuck}, &fake{name: "s2", check: stuck}
		good := &fake{name: "good"}
		set(t, m, s1, s2)
		stop := run(t, m)
		time.Sleep(100 * time.Millisecond)
		set(t, m, s1, s2, good)
		time.Sleep(20 * time.Second)
		if s := wantState(t, m, good, Up); s.Checks < 15 {
			t.Errorf("good: want it checked, got %d checks in 20 s", s.Checks)
		}
		wantState(t, m, s1, Down)
		wantState(t, m, s2, Down)
		close(release)
		time.Sleep(10 * time.Second)
		wantState(t, m, s1, Up)
		wantState(t, m, s2, Up)
		if s := m.Stats(); s.Running > 2 {
			t.Errorf("want 2 places, got %+v", s)
		}
		stop()
		if s := m.Stats(); s.Running != 0 {
			t.Errorf("want nothing running after Run, got %+v", s)
		}
	})
}

// hungLog is a log handler that hangs, as one does whose reader is stopped.
type hungLog struct {
	slog.Handler
	release chan struct{}
	mu      sync.Mutex
	said    []string
}

func (h *hungLog) Enabled(context.Context, slog.Level) bool { return true }

func (h *hungLog) Handle(_ context.Context, r slog.Record) error {
	<-h.release
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, r.Message)
	return nil
}

// TestMonitorHungLogDelaysNobody: a scheduler that logs by itself stands still
// with the log.
func TestMonitorHungLogDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hungLog{release: make(chan struct{})}
		m := New(Options{Logger: slog.New(h)})
		stuck := &fake{name: "stuck", check: func(context.Context) (Result, error) {
			<-h.release
			return Result{}, nil
		}}
		flap := &fake{name: "flap", check: script("+---++---++---++-")}
		set(t, m, stuck, flap)
		run(t, m)
		time.Sleep(30 * time.Second)
		if age := time.Since(m.Stats().LastTick); age > maxIdle {
			t.Errorf("the scheduler stands still for %v", age)
		}
		if s := wantState(t, m, flap, Down); s.Checks < 30 {
			t.Errorf("want 30 checks, got %d", s.Checks)
		}
		wantState(t, m, stuck, Down)
		close(h.release)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if !slices.Contains(h.said, "checker ignores its deadline") || !slices.Contains(h.said, "probe changed") {
			t.Errorf("want both told in the end, got %q", h.said)
		}
	})
}
