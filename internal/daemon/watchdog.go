package daemon

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// runWatchdog tells the service manager that lbd lives, while the goroutine that
// owns the table and the scheduler of the checks both make progress.
func (d *Daemon) runWatchdog(ctx context.Context) error {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		d.log.Warn("watchdog not used", "err", err)
	}
	if err != nil || limit <= 0 {
		<-ctx.Done()
		return nil
	}
	return d.watch(ctx, limit)
}

// watch reports each third of limit, but not when either heartbeat is older than
// limit.
func (d *Daemon) watch(ctx context.Context, limit time.Duration) error {
	ticker := time.NewTicker(limit / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			if who := d.stuck(now, limit); who != "" {
				d.log.Error("no heartbeat, the watchdog will act", "of", who)
				continue
			}
			d.notifier.watchdog()
		}
	}
}

// stuck names what has made no progress for limit; empty for nothing.
func (d *Daemon) stuck(now time.Time, limit time.Duration) string {
	if beat := d.owner.beat.Load(); beat != nil && now.Sub(*beat) > limit {
		return "owner of the table"
	}
	if tick := d.monitor.Stats().LastTick; !tick.IsZero() && now.Sub(tick) > limit {
		return "scheduler of the checks"
	}
	return ""
}
