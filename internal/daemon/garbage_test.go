package daemon

import (
	"context"
	"runtime/debug"
	"testing"
)

// gcPercent returns GOGC.
func gcPercent() int {
	p := debug.SetGCPercent(-1)
	debug.SetGCPercent(p)
	return p
}

// Not parallel: GOGC is the process's.
func TestDelayGC(t *testing.T) {
	old := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(old) })
	for _, tt := range []struct {
		env    string
		during int
	}{{"", startGCPercent}, {"100", 100}, {"off", 100}} {
		t.Setenv("GOGC", tt.env)
		restore := delayGC()
		if got := gcPercent(); got != tt.during {
			t.Errorf("during a start with GOGC=%s: want %d, got %d", tt.env, tt.during, got)
		}
		restore()
		if got := gcPercent(); got != 100 {
			t.Errorf("after a start with GOGC=%s: want 100, got %d", tt.env, got)
		}
	}
}

// A start is over when the table has been tried, whatever became of it.
func TestSettled(t *testing.T) {
	t.Parallel()
	d, _ := largeDaemon(t, 1)
	settled := make(chan struct{})
	d.settled = func() {
		select {
		case <-d.owner.tried:
		default:
			t.Error("the start is over before the table has been tried")
		}
		close(settled)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.run(ctx, nil, nil) }()
	<-settled
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
