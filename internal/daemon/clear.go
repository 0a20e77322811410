package daemon

import (
	"context"
	"errors"

	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/internal/reconcile"
	"github.com/lbd-project/lbd/ipvs"
)

// clear removes what lbd owns: its services, then its addresses, and gives back
// the sysctls and timeouts, and at last what the engine is made of. It goes by the
// memory alone, carries on after an error, and forgets what is done. The owner must
// not be running.
func (o *owner) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	report, err := o.reconciler.Pass(ctx, o.engine, reconcile.Desired{Owned: o.mem.owned})
	o.disown(report.Released)
	if errors.Is(err, ipvs.ErrNotAvailable) {
		// The table went away with the module, and everything in it.
		o.mem.owned, err = map[ipvs.ServiceKey]struct{}{}, nil
	}
	if err == nil {
		o.mem.forgetServers()
	}
	err = errors.Join(err,
		o.restoreSysctls(func(string) bool { return true }),
		o.restoreTimeouts(ctx, ipvs.Timeouts{}),
	)
	if o.clearEngine != nil {
		err = o.clearWhole(ctx, err)
	}
	err = errors.Join(err, o.removePaths(ctx), o.removeVIPs(func(VIP) bool { return true }))
	if err == nil {
		o.log.Info("cleared", "changes", len(report.Changes))
		o.mem.engine, o.mem.marks = "", memory.Marks{}
	}
	return errors.Join(err, o.remember())
}

// clearWhole removes an engine that takes all it has along: what could not be
// deleted of it one by one, for failed, since the disk is full for example.
func (o *owner) clearWhole(ctx context.Context, failed error) error {
	if err := o.clearEngine(ctx); err != nil {
		return errors.Join(failed, err)
	}
	if failed != nil {
		o.log.Warn("the engine was removed as a whole", "err", failed)
	}
	o.mem.owned = map[ipvs.ServiceKey]struct{}{}
	clear(o.mem.sysctls)
	o.mem.forgetServers()
	o.mem.timeouts = ipvs.Timeouts{}
	return nil
}
