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
		err = fixed(v.loaded.Config, next)
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
	drains := v.mem.drains.Leave(v.fleet, next, holds(table), time.Now())
	future := fleet.Decide(fleet.Input{Config: next, Probe: d.probe, Health: v.mem.health, Drains: drains})
	plan := api.Plan{Warnings: next.Warnings}
	for _, c := range reconcile.Plan(desiredTable(future, v.mem.owned, next.Exclusive), table) {
		plan.Steps = append(plan.Steps, step(c, drains))
	}
	return plan, nil
}

// holds returns whether a table holds a real server.
func holds(table []ipvs.TableEntry) func(ipvs.DestinationKey) bool {
	held := make(map[ipvs.DestinationKey]bool)
	for i := range table {
		for _, d := range table[i].Destinations {
			held[ipvs.DestinationKey{Service: table[i].ServiceKey, Address: d.Address}] = true
		}
	}
	return func(k ipvs.DestinationKey) bool { return held[k] }
}

// probe returns what the checks know of a probe.
func (d *Daemon) probe(p *healthcheck.Probe) healthcheck.Status {
	st, _ := d.monitor.Status(p.Key())
	return st
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
	if err := fixed(d.owner.view.Load().loaded.Config, c); errors.As(err, &bad) {
		r.Warnings = append(r.Warnings, bad.Lines...)
	}
	r.Warnings = append(r.Warnings, d.host.Warnings(c)...)
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
	r := reloadRequest{reply: make(chan api.ReloadResult, 1)}
	select {
	case d.reloads <- r:
	case <-ctx.Done():
		return api.ReloadResult{}, ctx.Err()
	case <-d.stopped:
		return api.ReloadResult{}, errStopped
	}
	select {
	case result := <-r.reply:
		return result, nil
	case <-ctx.Done():
		return api.ReloadResult{}, ctx.Err()
	case <-d.stopped:
		return api.ReloadResult{}, errStopped
	}
}
