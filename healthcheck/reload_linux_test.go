package healthcheck

import (
	"context"
	"testing"
	"time"
)

// TestMonitorReloadsLeakNothing changes the probes a hundred times while checks
// are under way that fail, pass and hang, and counts descriptors and goroutines.
func TestMonitorReloadsLeakNothing(t *testing.T) {
	targets := []Probe{
		{Method: TCP{}, Target: target(listen(t, "127.0.0.1"))},
		{Method: TCP{}, Target: refusing(t, "127.0.0.1")},
		{Method: TCP{}, Target: fullListener(t, "127.0.0.1")},
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	check(t, ctx, targets[2].Target, Env{}) // so that the poller exists
	cancel()
	nothingLeaks(t, "100 reloads", func() { reloadOften(t, targets) })
}

// reloadOften runs the targets and changes their timing a hundred times.
func reloadOften(t *testing.T, targets []Probe) {
	t.Helper()
	m := New(Options{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	reload := func(i int) {
		var probes []Probe
		for _, p := range targets {
			// Another timing is another probe.
			p.Timing = Timing{Interval: 10 * time.Second, Timeout: 5*time.Second + time.Duration(i)*time.Millisecond, Rise: 1, Fall: 1}
			probes = append(probes, p)
		}
		if err := m.Set(probes); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		reload(i)
		deadline := time.Now().Add(10 * time.Second)
		for m.Stats().Starts < uint64((i+1)*len(targets)) && time.Now().Before(deadline) {
			time.Sleep(100 * time.Microsecond)
		}
	}
	if s := m.Stats(); s.Starts < uint64(100*len(targets)) || s.Running == 0 {
		t.Errorf("want every probe started and the hanging one under way, got %+v", s)
	}
	// Those of probes that are gone do not wait for their time-outs.
	deadline := time.Now().Add(3 * time.Second)
	for m.Stats().Running > len(targets) && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if got := m.Stats().Running; got > len(targets) {
		t.Errorf("want at most %d checks under way, got %d", len(targets), got)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}
