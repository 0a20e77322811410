package healthcheck

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestThroughValidate(t *testing.T) {
	target := netip.MustParseAddr("192.0.2.1")
	for _, tt := range []struct {
		service string
		bad     bool
	}{
		{"", false},
		{"198.51.100.1", false},
		{"::ffff:198.51.100.1", false},
		{"2001:db8::1", true},
		{"192.0.2.1", true},
		{"0.0.0.0", true},
		{"224.0.0.1", true},
	} {
		var th Through
		if tt.service != "" {
			th.Service = netip.MustParseAddr(tt.service)
		}
		if err := th.Validate(target); (err != nil) != tt.bad {
			t.Errorf("%q: want an error: %v, got %v", tt.service, tt.bad, err)
		}
	}
}

// TestThroughKey tells probes of one real server through several services apart.
func TestThroughKey(t *testing.T) {
	p := Probe{Method: TCP{}, Target: netip.MustParseAddrPort("192.0.2.1:80"), Timing: Timing{Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}}
	const plain = "tcp 192.0.2.1:80 interval=1s timeout=1s rise=1 fall=1"
	if got := p.Key(); got != plain {
		t.Errorf("want %q, got %q", plain, got)
	}
	p.Through.Service = netip.MustParseAddr("198.51.100.1")
	if got, want := p.Key(), "tcp 192.0.2.1:80 service=198.51.100.1 interval=1s timeout=1s rise=1 fall=1"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	p.Through.Tunnel = true
	if got, want := p.Key(), "tcp 192.0.2.1:80 service=198.51.100.1 tunnel interval=1s timeout=1s rise=1 fall=1"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}

// lostPaths are ways that others may have taken away: Kept returns lost, and asked is
// what it was last asked about.
type lostPaths struct {
	mu    sync.Mutex
	lost  error
	asked time.Time
}

func (p *lostPaths) Path(Through, netip.Addr) (Path, error) { return Path{}, nil }

func (p *lostPaths) Kept(since time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = since
	return p.lost
}

// set begins anew.
func (p *lostPaths) set(lost error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost, p.asked = lost, time.Time{}
}

// A target that is down does not come up by an answer that may be of its own
// address; one that is up stays so.
func TestThroughLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		washed, paths := errors.New("washed away"), &lostPaths{}
		var answers atomic.Bool
		f := &fake{name: "fake", check: func(context.Context) (Result, error) {
			time.Sleep(100 * time.Millisecond)
			if !answers.Load() {
				return Result{}, errFake
			}
			return Result{}, nil
		}}
		p := Probe{Method: f, Target: netip.MustParseAddrPort("10.0.0.2:80"), Through: Through{Service: netip.MustParseAddr("192.0.2.10")},
			Timing: Timing{Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}}
		m := New(Options{Env: Env{Paths: paths}})
		if err := m.Set([]Probe{p}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		for _, step := range []struct {
			name    string
			answers bool
			lost    error
			want    State
			asked   bool
		}{
			{"no answer", false, washed, Down, false},
			{"an answer, by which way is not known", true, washed, Down, true},
			{"an answer", true, nil, Up, true},
			{"up, and the way is lost", true, washed, Up, false},
		} {
			answers.Store(step.answers)
			paths.set(step.lost)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			st, _ := m.Status(p.Key())
			paths.mu.Lock()
			asked := paths.asked
			paths.mu.Unlock()
			if st.State != step.want || asked.IsZero() == step.asked {
				t.Errorf("%s: want %v, asked of the way: %v, got %v (%v), asked since %v", step.name, step.want, step.asked, st.State, st.LastErr, asked)
			}
			if step.want != Down || !step.asked {
				continue
			}
			if !errors.Is(st.LastErr, ErrLocal) || !strings.Contains(st.LastErr.Error(), washed.Error()) {
				t.Errorf("%s: want why it does not count, got %v", step.name, st.LastErr)
			}
			if starts := f.started(); asked.After(starts[len(starts)-1]) {
				t.Errorf("asked since %v, behind the start of the check: %v", asked, starts)
			}
		}
		stop()
		<-done
	})
}

// closedPaths are ways that are used after their end.
type closedPaths struct{ Paths }

func (closedPaths) Kept(time.Time) error { panic("closed") }

// A panic of the ways of packets is a failed check, as one of a checker is.
func TestThroughPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{name: "fake", check: script("-+")}
		p := probeOf(f)
		p.Through.Service = netip.MustParseAddr("192.0.2.10")
		m := New(Options{Env: Env{Paths: closedPaths{}}})
		if err := m.Set([]Probe{p}); err != nil {
			t.Fatal(err)
		}
		run(t, m)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		st, _ := m.Status(p.Key())
		if want := "the check panicked: closed"; st.State != Down || st.LastErr == nil || st.LastErr.Error() != want || st.Checks < 3 {
			t.Errorf("want it down by %q, got %+v", want, st)
		}
	})
}
