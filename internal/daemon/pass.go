package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/reconcile"
	"github.com/lbd-project/lbd/ipvs"
)

// pass makes the host and the table what they should be, and says so. It returns
// what it wrote and every error. The next pass is due by its outcome.
func (o *owner) pass(ctx context.Context) (reconcile.Report, error) { return o.act(ctx, true) }

// react is a pass after something that does not change what services there are. It
// believes that the table is as the last pass left it, unless it is time to look.
// Of large tables looking is nearly all that a pass costs, and the next failure
// would wait for it.
func (o *owner) react(ctx context.Context) (reconcile.Report, error) {
	return o.act(ctx, o.sync.lastErr != nil || !time.Now().Before(o.look))
}

// act is a pass. look says that the table and the host are read, whatever there is
// to write.
func (o *owner) act(ctx context.Context, look bool) (reconcile.Report, error) {
	bounded, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	// What an operator said is written down before the table follows it, and
	// followed all the same where it cannot be: the table is not the worse for it.
	o.saveAdmin(time.Now())
	report, err := o.follow(bounded, look)
	if ctx.Err() == nil { // what a stop interrupts is no failure
		o.finish(report, err)
	}
	return report, err
}

// follow is a pass: decide, remember, and only then write. It goes on after an
// error, so that one refused service does not hold up a failed server of
// another.
func (o *owner) follow(ctx context.Context, look bool) (reconcile.Report, error) {
	if err := o.adopt(ctx); err != nil {
		// Without it the servers to drain would be taken for somebody's stray ones.
		return reconcile.Report{}, err
	}
	var errs []error
	o.finishDrains(time.Now())
	f := o.decide()
	o.observer.decided(f.Memory)
	o.fleet = f
	o.mem.health, o.mem.fleet = f.Health, f.Memory
	o.alerts = append(o.alerts, f.Alerts...)
	o.commands = commands(f, o.loaded.Config)
	// Before the table: a kill right after a server's weight became 0 must not
	// revive it. A full disk must not keep the weight of a dead server, though.
	forgetful := o.remember()
	if forgetful != nil {
		errs = append(errs, forgetful)
	}
	if err := o.observer.watch(ctx, o.loaded.Config); err != nil {
		errs = append(errs, err)
	}
	desired := desiredTable(f, o.mem, o.loaded.Exclusive)
	// First of all the weight of a failed server: a look at the host takes its time.
	report, done := o.reconciler.Ahead(ctx, o.engine, desired)
	if look || !done {
		var err error
		if report, err = o.reconcile(ctx, f, desired, report); err != nil {
			errs = append(errs, err)
		}
	}
	o.mem.order = o.reconciler.Orders(desired, o.mem.order)
	if err := o.remember(); err != nil && forgetful == nil {
		errs = append(errs, err)
	}
	return report, errors.Join(errs...)
}

// reconcile makes the host and the table as desired, whatever they are now. before
// is what the pass did so far.
func (o *owner) reconcile(ctx context.Context, f *fleet.Fleet, desired reconcile.Desired, before reconcile.Report) (reconcile.Report, error) {
	var errs []error
	if err := o.prepareHost(ctx, f); err != nil {
		errs = append(errs, err)
	}
	owned := o.mem.owned
	report, err := o.reconciler.Pass(ctx, o.engine, desired)
	if err != nil {
		errs = append(errs, err)
	}
	for _, c := range report.Changes {
		if _, ours := owned[c.Op.Service.ServiceKey]; c.Kind == ipvs.OpDeleteService && !ours {
			o.log.Warn("foreign virtual service removed: lbd is exclusive", "service", c.Op.Service.ServiceKey)
		}
	}
	o.disown(report.Released)
	if err := o.releaseHost(ctx, f, err == nil); err != nil {
		errs = append(errs, err)
	}
	return report.After(before), errors.Join(errs...)
}

// decide decides about the whole fleet from what is known now, and notes which advice
// it went by.
func (o *owner) decide() *fleet.Fleet {
	advice := make(map[string]healthcheck.Advice)
	f := fleet.Decide(fleet.Input{
		Config: o.loaded.Config,
		Now:    time.Now(),
		Probe: func(p *healthcheck.Probe) healthcheck.Status {
			st := o.status(p)
			if a := decisive(st.Advice); a != (healthcheck.Advice{}) {
				advice[o.subject(p)] = a
			}
			return st
		},
		Health: o.mem.health,
		Memory: o.mem.fleet,
		Admin:  o.admin.all,
		Drains: o.mem.drains,

		Handshakes: o.observer.handshakes(),
	})
	o.mem.advice = advice
	return f
}

// decisive returns the part of an advice that a decision depends on: a reason that
// changes with each answer of an agent is nothing to write down.
func decisive(a healthcheck.Advice) healthcheck.Advice {
	out := healthcheck.Advice{Weight: a.Weight}
	if a.Health == healthcheck.SaysDown {
		out.Health = a.Health
	}
	if a.Admin != healthcheck.SaysReady {
		out.Admin = a.Admin
	}
	return out
}

// status returns what the checks know of a probe of the configuration.
func (o *owner) status(p *healthcheck.Probe) healthcheck.Status {
	key, ok := o.keys[p]
	if !ok {
		key = p.Key()
		o.keys[p] = key
	}
	st, _ := o.monitor.Status(key)
	return st
}

// subject returns the name in the memory of what a probe of the configuration looks
// at.
func (o *owner) subject(p *healthcheck.Probe) string {
	name, ok := o.subjects[p]
	if !ok {
		name = subject(p)
		o.subjects[p] = name
	}
	return name
}

// subject makes a name of what a probe looks at: another timing keeps it, as a reload
// does. It is a digest, short however much a check is told to send.
func subject(p *healthcheck.Probe) string {
	sum := sha256.Sum256([]byte(p.Subject()))
	return hex.EncodeToString(sum[:16])
}

// adopt looks in the table for servers that the configuration lacks, and drains
// them: in all services of lbd once, when the table can be read for the first
// time, for servers that left while lbd was not running; later on in services
// that become lbd's, which somebody else may have filled.
func (o *owner) adopt(ctx context.Context) error {
	ours := unclaimed(o.loaded.Config, o.mem.owned)
	o.mem.drains = slices.DeleteFunc(slices.Clone(o.mem.drains), func(d fleet.Drain) bool {
		// A service that left the configuration before it was written down as
		// lbd's is still somebody else's.
		_, wanted := ours[d.Service.ServiceKey]
		_, owned := o.mem.owned[d.Service.ServiceKey]
		return !wanted && !owned
	})
	if o.adopted && len(ours) == 0 {
		return nil
	}
	table, err := o.engine.Table(ctx)
	if err != nil {
		return fmt.Errorf("adopt the table: %w", err)
	}
	if !o.adopted {
		maps.Copy(ours, o.mem.owned)
	}
	drains, refused := o.mem.drains.Adopt(table, ours, o.loaded.Config, time.Now())
	for _, err := range refused {
		o.log.Warn("not in the configuration and cannot be drained: deleted at once", "err", err)
	}
	o.mem.drains = drains
	o.adopted = true
	return nil
}

// unclaimed returns the services of a configuration that are not owned yet.
func unclaimed(c *config.Config, owned map[ipvs.ServiceKey]struct{}) map[ipvs.ServiceKey]struct{} {
	keys := make(map[ipvs.ServiceKey]struct{})
	for i := range c.VirtualServices {
		k := c.VirtualServices[i].ServiceKey
		if _, ok := owned[k]; !ok {
			keys[k] = struct{}{}
		}
	}
	return keys
}

// finishDrains ends the drains that are over and reports whether there were
// any.
func (o *owner) finishDrains(now time.Time) bool {
	if len(o.mem.drains) == 0 {
		return false
	}
	c := o.mirror.counts.Load()
	left := o.mem.drains.Finish(func(k ipvs.DestinationKey) (ipvs.Conns, bool) {
		// Counts from before the weight was 0 say nothing of what came after.
		if since, ok := o.drained[k]; !ok || c == nil || !c.at.After(since) {
			return ipvs.Conns{}, false
		}
		d, ok := c.conns(k)
		return d.Conns, ok
	}, now)
	if len(left) == len(o.mem.drains) {
		return false
	}
	o.mem.drains = left
	return true
}

// desiredTable turns a decision into what the table should hold, with what is
// remembered of it.
func desiredTable(f *fleet.Fleet, mem *ledger, exclusive bool) reconcile.Desired {
	d := reconcile.Desired{
		Services:  make([]reconcile.DesiredService, 0, len(f.Services)),
		Owned:     mem.owned,
		Exclusive: exclusive,
	}
	for i := range f.Services {
		s := &f.Services[i]
		ds := reconcile.DesiredService{
			Name: s.Name, Service: s.Service, Order: mem.order[s.ServiceKey],
			Destinations: make([]ipvs.Destination, 0, len(s.Servers)),
		}
		for j := range s.Servers {
			if s.Servers[j].Present {
				ds.Destinations = append(ds.Destinations, s.Servers[j].Destination)
			}
		}
		d.Services = append(d.Services, ds)
	}
	return d
}

// own writes down that services are lbd's. It is called before they are created.
func (o *owner) own(keys []ipvs.ServiceKey) error {
	// The reconciler reads the old map: it is replaced, not written to.
	owned := cloneMap(o.mem.owned)
	for _, k := range keys {
		owned[k] = struct{}{}
	}
	before := o.mem.owned
	o.mem.owned = owned
	err := o.remember()
	if err != nil {
		o.mem.owned = before // what is not written down must be claimed again
	}
	return err
}

// disown forgets services that are gone.
func (o *owner) disown(keys []ipvs.ServiceKey) {
	if len(keys) == 0 {
		return
	}
	owned := cloneMap(o.mem.owned)
	released, now := cloneMap(o.released), time.Now()
	for _, k := range keys {
		delete(owned, k)
		released[k] = now
	}
	o.mem.owned, o.released = owned, released
}

// remember saves the memory if it changed.
func (o *owner) remember() error {
	if o.saved != nil && o.mem.equal(o.saved) {
		return nil
	}
	if err := o.store.Save(o.mem.memory(time.Now(), o.since)); err != nil {
		return fmt.Errorf("remember: %w", err)
	}
	o.saved = o.mem.clone()
	return nil
}
