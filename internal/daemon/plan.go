package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/reconcile"
	"github.com/lbd-project/lbd/ipvs"
)

// Diff implements api.Backend. It plans what a reload of the file would do, from
// a fresh reading of the table.
func (d *Daemon) Diff(ctx context.Context, f api.File) (api.Plan, error) {
	next, err := parse(f.Name, []byte(f.Content))
	v := d.owner.view.Load()
	if err == nil {
		err = d.acceptable(next)
	}
	var bad *ConfigError
	if errors.As(err, &bad) {
		return api.Plan{Errors: bad.Lines}, nil
	}
	if v.fleet == nil {
		return api.Plan{}, fmt.Errorf("%w: the table has not been read yet", api.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	table, err := d.watched.Table(ctx)
	if err != nil {
		return api.Plan{}, err
	}
	now, conns := time.Now(), connections(table)
	held := func(k ipvs.DestinationKey) bool { _, ok := conns[k]; return ok }
	unknown := func(ipvs.DestinationKey) (ipvs.Conns, bool) { return ipvs.Conns{}, false }
	drains := v.mem.drains.Leave(v.fleet, next, held, now)
	drains, _ = drains.Adopt(table, unclaimed(next, v.mem.owned), next, now)
	drains = drains.Finish(unknown, now)
	statuses := d.monitor.Foresee(fleet.Probes(next))
	future := fleet.Decide(fleet.Input{
		Config: next, Now: now, Health: v.mem.health.Join(v.fleet, next), Memory: v.mem.fleet, Admin: v.admin,
		Drains: drains, Handshakes: d.owner.observer.handshakes(),
		Probe: func(p *healthcheck.Probe) healthcheck.Status { return statuses[p.Key()] },
	})
	plan := api.Plan{Warnings: next.Warnings}
	for _, c := range reconcile.Plan(desiredTable(future, v.mem, next.Exclusive), table) {
		plan.Steps = append(plan.Steps, step(c, drains))
	}
	plan.Steps = append(plan.Steps, unwritten(v.fleet, future, conns)...)
	return plan, nil
}

// connections returns the connections of each real server in a table.
func connections(table []ipvs.TableEntry) map[ipvs.DestinationKey]ipvs.Conns {
	conns := make(map[ipvs.DestinationKey]ipvs.Conns)
	for i := range table {
		for _, d := range table[i].Destinations {
			conns[ipvs.DestinationKey{Service: table[i].ServiceKey, Address: d.Address}] = d.Conns
		}
	}
	return conns
}

// unwritten returns the steps from one decision to another that need no write
// now: the weight is 0 before and after.
func unwritten(old, next *fleet.Fleet, conns map[ipvs.DestinationKey]ipvs.Conns) []api.Step {
	was := make(map[ipvs.DestinationKey]*fleet.Server)
	for i := range old.Services {
		s := &old.Services[i]
		for j := range s.Servers {
			was[ipvs.DestinationKey{Service: s.ServiceKey, Address: s.Servers[j].Address}] = &s.Servers[j]
		}
	}
	var steps []api.Step
	for i := range next.Services {
		s := &next.Services[i]
		for j := range s.Servers {
			is := &s.Servers[j]
			k := ipvs.DestinationKey{Service: s.ServiceKey, Address: is.Address}
			before := was[k]
			if before == nil || before.Weight != 0 {
				continue
			}
			st := api.Step{Service: s.Name, RealServer: is.Address.String()}
			switch {
			case is.State == fleet.Draining && before.State != fleet.Draining:
				st.Op = "drain destination"
				st.Change = "weight stays 0" + ending(is.Deadline)
				st.ActiveConnections = conns[k].Active
			case is.State == fleet.Down && is.Configured != before.Configured:
				st.Op = ipvs.OpUpdateDestination.String()
				st.Change = fmt.Sprintf("configured weight %d -> %d, programmed once the server is up", before.Configured, is.Configured)
			default:
				continue
			}
			steps = append(steps, st)
		}
	}
	return steps
}

// ending says how a drain ends.
func ending(deadline time.Time) string {
	return fmt.Sprintf("; deleted when no connection is active, in %v at the latest",
		max(0, time.Until(deadline)).Round(time.Second))
}

// step turns a change into words. Only a step that cuts connections, or keeps a
// server for their sake, has their number.
func step(c reconcile.Change, drains fleet.Drains) api.Step {
	s := api.Step{Op: c.Kind.String(), Service: c.Name, Change: c.Describe()}
	if s.Service == "" {
		s.Service = c.Op.Service.ServiceKey.String()
	}
	if c.Destination.Address.IsValid() {
		s.RealServer = c.Destination.Address.String()
	}
	switch c.Kind {
	case ipvs.OpDeleteService, ipvs.OpDeleteDestination:
		s.ActiveConnections = c.Conns.Active
	case ipvs.OpUpdateDestination:
		key := ipvs.DestinationKey{Service: c.Op.Service.ServiceKey, Address: c.Destination.Address}
		for i := range drains {
			if drains[i].Key() == key {
				s.Op = "drain destination"
				s.Change += ending(drains[i].Deadline)
				s.ActiveConnections = c.Conns.Active
			}
		}
	}
	return s
}

// Check implements api.Backend: what is wrong with the file, and what this host
// cannot do of it.
func (d *Daemon) Check(ctx context.Context, f api.File) (api.CheckReport, error) {
	c, err := parse(f.Name, []byte(f.Content))
	var bad *ConfigError
	if errors.As(err, &bad) {
		return api.CheckReport{Errors: bad.Lines}, nil
	}
	r := api.CheckReport{Warnings: slices.Clone(c.Warnings)}
	if err := fixed(d.configuration(), c); errors.As(err, &bad) {
		r.Warnings = append(r.Warnings, bad.Lines...)
	}
	r.Warnings = append(r.Warnings, d.host.Warnings(c)...)
	if err := suits(d.engine, c); errors.As(err, &bad) {
		r.HostErrors = bad.Lines
		return r, nil
	}
	r.HostErrors, err = d.hostErrors(ctx, c)
	return r, err
}

// Reconcile implements api.Backend.
func (d *Daemon) Reconcile(ctx context.Context) (api.ReconcileResult, error) {
	var result api.ReconcileResult
	done := make(chan api.ReconcileResult, 1)
	err := d.owner.do(ctx, d.stopped, func(ctx context.Context) {
		report, err := d.owner.pass(ctx)
		var r api.ReconcileResult
		for _, c := range report.Changes {
			r.Steps = append(r.Steps, step(c, d.owner.mem.drains))
		}
		if err != nil {
			r.Errors = append(r.Errors, err.Error())
		}
		done <- r
	})
	if err == nil {
		result = <-done
	}
	return result, err
}

// Reload implements api.Backend.
func (d *Daemon) Reload(ctx context.Context) (api.ReloadResult, error) {
	return d.requestReload(ctx, reloadRequest{reply: make(chan reloadReply, 1)})
}

// ReloadNow implements api.Backend.
func (d *Daemon) ReloadNow(ctx context.Context) (api.ReloadResult, error) {
	return d.requestReload(ctx, reloadRequest{now: true, reply: make(chan reloadReply, 1)})
}

func (d *Daemon) requestReload(ctx context.Context, r reloadRequest) (api.ReloadResult, error) {
	select {
	case d.reloads <- r:
	case <-ctx.Done():
		return api.ReloadResult{}, ctx.Err()
	case <-d.stopped:
		return api.ReloadResult{}, errStopped
	}
	select {
	case reply := <-r.reply:
		return reply.result, reply.err
	case <-ctx.Done():
		return api.ReloadResult{}, ctx.Err()
	case <-d.stopped:
		return api.ReloadResult{}, errStopped
	}
}
