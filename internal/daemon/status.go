package daemon

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/daemon/notify"
	"github.com/lbd-project/lbd/internal/version"
	"github.com/lbd-project/lbd/ipvs"
)

// Status implements api.Backend.
func (d *Daemon) Status(context.Context) (api.Status, error) {
	v, now := d.owner.view.Load(), time.Now()
	s := api.Status{
		Version:         version.String(),
		PID:             os.Getpid(),
		UptimeSeconds:   now.Sub(d.started).Seconds(),
		Time:            now,
		Engine:          string(d.engine),
		EngineReason:    d.engineReason,
		EngineVersion:   d.engineVersion,
		ConfigFile:      v.loaded.file,
		ConfigLoaded:    v.loaded.at,
		ConfigSHA256:    v.loaded.sha256,
		LastReloadError: v.reloadErr,
		Sync:            v.sync.api(now),
		Mirror:          d.mirror.api(now),
		Checks:          checksOf(d.monitor.Stats(), now),
		Policies:        v.policies(),
		Foreign:         []string{},
		Sysctls:         v.loaded.Sysctls,
		Warnings:        slices.Concat(d.stateWarnings, v.loaded.Warnings, d.adviser.last()),
	}
	if d.warnings != nil {
		s.Warnings = append(s.Warnings, d.warnings()...)
	}
	s.Sync.HeartbeatSeconds = -1
	if beat := d.owner.beat.Load(); beat != nil {
		s.Sync.HeartbeatSeconds = age(now, *beat)
	}
	s.Hooks = d.owner.told.Status()
	s.Warnings = append(s.Warnings, notify.Warnings(s.Hooks)...)
	s.Warnings = append(s.Warnings, v.checkWarnings()...)
	s.Services, s.RealServers = v.counts()
	s.Overrides = api.Overrides{RealServers: len(v.admin), File: d.owner.admin.path}
	if v.adminErr != nil {
		s.Overrides.LastError = v.adminErr.Error()
	}
	for _, e := range d.foreign(v) {
		s.Foreign = append(s.Foreign, e.ServiceKey.String())
	}
	return s, nil
}

func (m *mirror) api(now time.Time) api.Mirror {
	a := api.Mirror{CountsAgeSeconds: -1, StatsAgeSeconds: -1}
	if c := m.counts.Load(); c != nil {
		a.CountsAgeSeconds = age(now, c.at)
	}
	if s := m.stats.Load(); s != nil {
		a.StatsAgeSeconds = age(now, s.at)
	}
	if err := m.lastErr(); err != nil {
		a.LastError = err.Error()
	}
	return a
}

// checksOf says how well the checks keep to their times.
func checksOf(st healthcheck.Stats, now time.Time) api.Checks {
	return api.Checks{
		Probes: st.Probes, Running: st.Running, Waiting: st.Waiting, Overdue: st.Overdue,
		Results: st.Checks, Failures: st.Failures, Skipped: st.Skipped,
		LagSeconds:       (st.LagTotal / time.Duration(max(st.Starts, 1))).Seconds(),
		LagMaxSeconds:    st.LagMax.Seconds(),
		HeartbeatSeconds: age(now, st.LastTick),
	}
}

// policies counts what the policies of the services do.
func (v *view) policies() (p api.Policies) {
	if v.fleet == nil {
		return p
	}
	count := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	for i := range v.fleet.Services {
		s := &v.fleet.Services[i]
		count(&p.QuorumLost, s.Quorum == fleet.QuorumLost)
		count(&p.BackupIn, s.Backup)
		count(&p.HealthIgnored, s.FailOpen)
		for j := range s.Servers {
			count(&p.Ramping, s.Servers[j].Ramping)
		}
	}
	return p
}

// counts counts services and real servers by state. A service is up while a real
// server of it takes connections: also a failed one, where fail_open_below says so.
func (v *view) counts() (services, servers api.Counts) {
	if v.fleet == nil {
		return services, servers
	}
	for i := range v.fleet.Services {
		s := &v.fleet.Services[i]
		var takes, pending bool
		for j := range s.Servers {
			rs := &s.Servers[j]
			count(&servers, rs.State)
			if rs.Present && rs.Weight > 0 {
				takes = takes || rs.State != fleet.Pending
				pending = pending || rs.State == fleet.Pending
			}
		}
		switch {
		case s.Leaving:
			count(&services, fleet.Draining)
		case takes:
			count(&services, fleet.Up)
		case pending:
			count(&services, fleet.Pending)
		default:
			count(&services, fleet.Down)
		}
	}
	return services, servers
}

// count adds a thing in a state. What is not checked is up.
func count(c *api.Counts, s fleet.State) {
	c.Total++
	switch s {
	case fleet.Up, fleet.Unchecked:
		c.Up++
	case fleet.Pending:
		c.Pending++
	case fleet.Down:
		c.Down++
	case fleet.Draining:
		c.Draining++
	case fleet.Drained:
		c.Drained++
	case fleet.Disabled:
		c.Disabled++
	case fleet.Standby:
		c.Standby++
	case fleet.Ejected:
		c.Ejected++
	}
}

// foreign returns the services in the table that are not lbd's.
func (d *Daemon) foreign(v *view) []ipvs.TableEntry {
	st := d.mirror.stats.Load()
	if st == nil {
		return nil
	}
	var list []ipvs.TableEntry
	for _, e := range st.table {
		_, ours := v.mem.owned[e.ServiceKey]
		if at, was := v.released[e.ServiceKey]; !ours && (!was || st.at.After(at)) {
			list = append(list, e)
		}
	}
	return list
}
