package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// stuckUntil is a check that ignores its context until release is closed.
func stuckUntil(release <-chan struct{}) func(context.Context) (Result, error) {
	return func(context.Context) (Result, error) {
		<-release
		return Result{}, nil
	}
}

// A probe that is removed while its checker does not return, such as that of a
// file on a dead server, gives its place to others.
func TestMonitorRemovedStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hungLog{release: make(chan struct{})}
		close(h.release)
		m := New(Options{Parallel: 1, Logger: slog.New(h)})
		release := make(chan struct{})
		stuck := &fake{name: "stuck", check: stuckUntil(release)}
		good := &fake{name: "good"}
		set(t, m, stuck)
		run(t, m)
		time.Sleep(100 * time.Millisecond)
		set(t, m, good)
		time.Sleep(500 * time.Millisecond)
		if s := m.Stats(); s.Overdue != 0 || s.Running != 1 {
			t.Errorf("before it is overdue: got %+v", s)
		}
		time.Sleep(10 * time.Second)
		if s := wantState(t, m, good, Up); s.Checks < 8 {
			t.Errorf("want the other one checked each second, got %d checks", s.Checks)
		}
		if s := m.Stats(); s.Overdue != 1 || s.Running != 0 || s.Probes != 1 {
			t.Errorf("while it is stuck: got %+v", s)
		}
		h.mu.Lock()
		if !slices.Contains(h.said, "checker ignores its deadline") {
			t.Errorf("want it told, got %q", h.said)
		}
		h.mu.Unlock()
		close(release)
		synctest.Wait()
		if s := m.Stats(); s.Overdue != 0 || s.Running != 0 {
			t.Errorf("after it returned: got %+v", s)
		}
		wantIdle(t, m)
	})
}

// A probe with another schedule in the place of one that is stuck does not get
// stuck, too: with each reload one more would.
func TestMonitorStuckAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		release := make(chan struct{})
		stuck := &fake{name: "stuck", check: stuckUntil(release)}
		set(t, m, stuck)
		run(t, m)
		var last Probe
		for i := range 20 {
			time.Sleep(10 * time.Second)
			last = probeOf(stuck)
			last.Interval = time.Second + time.Duration(i)*time.Millisecond
			if err := m.Set([]Probe{last}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		s, _ := m.Status(last.Key())
		if s.State != Down || !errors.Is(s.LastErr, errBehind) {
			t.Errorf("want it down, as it was not begun, got %+v", s)
		}
		if n, st := len(stuck.started()), m.Stats(); n != 1 || st.Overdue != 1 {
			t.Errorf("want one run, got %d and %+v", n, st)
		}
		close(release)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s, _ = m.Status(last.Key()); s.State != Up {
			t.Errorf("after it returned: want it up, got %+v", s)
		}
		wantIdle(t, m)
	})
}

// However many are stuck, all others go on, also those of their kind: after a stall
// of the host thousands are overdue at once, for a moment.
func TestMonitorStuckMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const parallel = 50
		m := New(Options{Parallel: parallel})
		release := make(chan struct{})
		check := stuckUntil(release)
		good := &fake{name: "kind good"}
		fakes := []*fake{good}
		for i := range 1200 {
			fakes = append(fakes, &fake{name: fmt.Sprintf("kind stuck %d", i), check: check})
		}
		set(t, m, fakes...)
		run(t, m)
		time.Sleep(2 * time.Minute)
		if s := wantState(t, m, good, Up); s.Failures > 0 {
			t.Errorf("want no failure of the good one, got %d of %d", s.Failures, s.Checks)
		}
		before := len(good.started())
		time.Sleep(20 * time.Second)
		if n := len(good.started()) - before; n < 20 {
			t.Errorf("want the good one checked each second, got %d checks in 20 s", n)
		}
		for _, f := range fakes[1:] {
			if s := wantState(t, m, f, Down); len(f.started()) != 1 || !errors.Is(s.LastErr, errOverrun) {
				t.Errorf("want one begun, and overdue, got %d and %v", len(f.started()), s.LastErr)
			}
		}
		close(release)
		time.Sleep(time.Minute)
		for _, f := range fakes[1:] {
			wantState(t, m, f, Up)
		}
		wantIdle(t, m)
	})
}

// Run does not wait for a checker that does not return.
func TestMonitorStopStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{100 * time.Millisecond, 10 * time.Second} {
			m := New(Options{})
			release := make(chan struct{})
			set(t, m, &fake{name: "stuck", check: stuckUntil(release)}, &fake{name: "good"})
			stop := run(t, m)
			time.Sleep(after)
			begun := time.Now()
			stop()
			if took := time.Since(begun); took != overrun {
				t.Errorf("stopped after %v: want Run to wait for %v, got %v", after, overrun, took)
			}
			close(release)
			synctest.Wait()
		}
	})
}

// Whatever is removed, added and stuck at which time, all places are free in the
// end.
func TestMonitorStuckAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 2))
		m := New(Options{Parallel: 3})
		var mu sync.Mutex
		calm := false
		check := func(ctx context.Context) (Result, error) {
			mu.Lock()
			d, late := time.Duration(rnd.IntN(400))*time.Millisecond, rnd.IntN(4) == 0 && !calm
			mu.Unlock()
			if late {
				// Past the deadline, and perhaps past what is overdue.
				time.Sleep(d * 20)
				return Result{}, nil
			}
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
			return Result{}, ctx.Err()
		}
		var fakes []*fake
		for i := range 10 {
			fakes = append(fakes, &fake{name: fmt.Sprintf("f %d", i), check: check})
		}
		run(t, m)
		for range 500 {
			mu.Lock()
			var probes []Probe
			for _, f := range fakes {
				if p := probeOf(f); rnd.IntN(3) > 0 {
					p.Interval += time.Duration(rnd.IntN(2)) * time.Millisecond
					probes = append(probes, p)
				}
			}
			wait := time.Duration(rnd.IntN(3000)) * time.Millisecond
			mu.Unlock()
			if err := m.Set(probes); err != nil {
				t.Fatal(err)
			}
			time.Sleep(wait)
			if s := m.Stats(); s.Running > 3 {
				t.Fatalf("more run than may: %+v", s)
			}
		}
		mu.Lock()
		calm = true
		mu.Unlock()
		set(t, m, fakes...)
		time.Sleep(time.Minute)
		for _, f := range fakes {
			wantState(t, m, f, Up)
		}
		set(t, m)
		time.Sleep(time.Second)
		wantIdle(t, m)
		if s := m.Stats(); s.Running != 0 || s.Waiting != 0 {
			t.Errorf("in the end: got %+v", s)
		}
	})
}

// wantIdle wants nothing kept of runs that have ended.
func wantIdle(t *testing.T, m *Monitor) {
	t.Helper()
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.stats.overdue; o.total != 0 || len(o.left) != 0 || len(m.queue) != len(m.probes) {
		t.Errorf("want nothing overdue and %d in the queue, got %+v and %d", len(m.probes), o, len(m.queue))
	}
}
