package daemon

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
)

// Checks that stand still stop the watchdog, although everything else goes on;
// else servers could be dead for a day, and nobody would know.
func TestWatchdogOfChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 30 * time.Second
		fed := 0
		log := slog.New(slog.DiscardHandler)
		d := &Daemon{
			log:      log,
			owner:    &owner{},
			monitor:  healthcheck.New(healthcheck.Options{}),
			notifier: &notifier{log: log, send: func(string) error { fed++; return nil }},
		}
		checks, freeze := context.WithCancel(t.Context())
		all, stop := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- d.monitor.Run(checks) }()
		go func() { done <- d.watch(all, limit) }()
		pass := func(minutes int) {
			for range minutes * 60 {
				time.Sleep(time.Second)
				beat := time.Now()
				d.owner.beat.Store(&beat)
			}
			synctest.Wait()
		}
		pass(10)
		if fed < 50 {
			t.Errorf("10 minutes with checks: want the watchdog fed, got %d times", fed)
		}
		freeze()
		pass(1)
		fed = 0
		pass(10)
		if who := d.stuck(time.Now(), limit); who != "scheduler of the checks" || fed > 0 {
			t.Errorf("10 minutes without: want the checks named and nothing fed, got %q and %d times", who, fed)
		}
		stop()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
