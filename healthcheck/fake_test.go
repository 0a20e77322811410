package healthcheck

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errFake = errors.New("fake failure")

// fake is a Method whose checker calls check, and which remembers when.
type fake struct {
	name  string
	check func(ctx context.Context) (Result, error)

	mu     sync.Mutex
	starts []time.Time
	made   int
	// running and most count runs at the same time.
	running, most int
}

func (f *fake) Key() string { return f.name }

func (f *fake) NewChecker(netip.AddrPort, Env) (Checker, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	return f, nil
}

func (f *fake) Check(ctx context.Context) (Result, error) {
	f.mu.Lock()
	f.starts = append(f.starts, time.Now())
	f.running++
	f.most = max(f.most, f.running)
	check := f.check
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.running--
	}()
	if check == nil {
		return Result{}, nil
	}
	return check(ctx)
}

// started returns the times of the runs until now.
func (f *fake) started() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Time(nil), f.starts...)
}

// become changes what later runs do.
func (f *fake) become(check func(context.Context) (Result, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.check = check
}

// peak returns how many runs there were at the same time.
func (f *fake) peak() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

// script is a check that plays results, "+" and "-", and repeats the last.
func script(results string) func(context.Context) (Result, error) {
	var mu sync.Mutex
	return func(context.Context) (Result, error) {
		mu.Lock()
		defer mu.Unlock()
		r := results[0]
		if len(results) > 1 {
			results = results[1:]
		}
		if r == '-' {
			return Result{}, errFake
		}
		return Result{Detail: "fine"}, nil
	}
}

// hang is a check that keeps to its deadline and to nothing else.
func hang(ctx context.Context) (Result, error) {
	<-ctx.Done()
	return Result{}, ctx.Err()
}

var second = Timing{Interval: time.Second, Timeout: 500 * time.Millisecond, Rise: 2, Fall: 3}

func probeOf(f *fake) Probe {
	return Probe{Method: f, Target: netip.MustParseAddrPort("192.0.2.1:80"), Timing: second}
}

// run runs m in the bubble until the returned function is called, which waits
// for the end of Run.
func run(t *testing.T, m *Monitor) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func set(t *testing.T, m *Monitor, fakes ...*fake) {
	t.Helper()
	var probes []Probe
	for _, f := range fakes {
		probes = append(probes, probeOf(f))
	}
	if err := m.Set(probes); err != nil {
		t.Fatalf("Set: %v", err)
	}
}

// wantState waits until the bubble is idle and compares the state of f.
func wantState(t *testing.T, m *Monitor, f *fake, want State) Status {
	t.Helper()
	synctest.Wait()
	s, ok := m.Status(probeOf(f).Key())
	if !ok {
		t.Fatalf("%s: no such probe", f.name)
	}
	if s.State != want {
		t.Errorf("%s: want %v, got %v after %d checks: %v", f.name, want, s.State, s.Checks, s.LastErr)
	}
	return s
}

// recorder is a Notify that keeps what it is told.
type recorder struct {
	mu      sync.Mutex
	changes []Change
}

func (r *recorder) notify(c Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
}

// states returns the states told of the probe of f, in order.
func (r *recorder) states(f *fake) []State {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []State
	for _, c := range r.changes {
		if c.Key == probeOf(f).Key() {
			out = append(out, c.State)
		}
	}
	return out
}
