package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/ipvs"
)

// Services implements api.Backend.
func (d *Daemon) Services(context.Context) ([]api.Service, error) {
	v := d.owner.view.Load()
	r := newReading(d, v)
	var list []api.Service
	if v.fleet != nil {
		for i := range v.fleet.Services {
			list = append(list, r.service(&v.fleet.Services[i]))
		}
	}
	for _, e := range d.foreign(v) {
		list = append(list, foreignService(e))
	}
	return list, nil
}

// Table implements api.Backend.
func (d *Daemon) Table(ctx context.Context) ([]api.Service, error) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	table, err := d.watched.Table(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(table, func(a, b ipvs.TableEntry) int { return a.ServiceKey.Compare(b.ServiceKey) })
	list := make([]api.Service, len(table))
	for i, e := range table {
		list[i] = api.TableService(e)
	}
	return list, nil
}

// reading puts together what the owner decided, what the mirror saw and what the
// checks found.
type reading struct {
	now    time.Time
	view   *view
	counts *counts
	stats  map[ipvs.ServiceKey]*ipvs.TableEntry
	probes map[string]healthcheck.Status
}

func newReading(d *Daemon, v *view) *reading {
	r := &reading{
		now:    time.Now(),
		view:   v,
		counts: d.mirror.counts.Load(),
		stats:  make(map[ipvs.ServiceKey]*ipvs.TableEntry),
		probes: d.monitor.Snapshot(),
	}
	if st := d.mirror.stats.Load(); st != nil {
		for i := range st.table {
			r.stats[st.table[i].ServiceKey] = &st.table[i]
		}
	}
	return r
}

func (r *reading) service(s *fleet.Service) api.Service {
	e := ipvs.TableEntry{ServiceStatus: ipvs.ServiceStatus{Service: s.Service}}
	old := make(map[netip.AddrPort]*ipvs.DestinationStatus)
	if is := r.stats[s.ServiceKey]; is != nil {
		e.Stats = is.Stats
		for i := range is.Destinations {
			old[is.Destinations[i].Address] = &is.Destinations[i]
		}
	}
	a := api.TableService(e)
	a.Name = s.Name
	if s.Quorum != fleet.QuorumNone {
		a.Quorum = s.Quorum.String()
	}
	a.BackupIn, a.HealthIgnored = s.Backup, s.FailOpen
	for i := range s.Servers {
		a.RealServers = append(a.RealServers, r.server(s.ServiceKey, &s.Servers[i], old[s.Servers[i].Address]))
	}
	return a
}

// server describes a real server; old is its state at the last reading of the
// statistics, nil if it was not there.
func (r *reading) server(k ipvs.ServiceKey, s *fleet.Server, old *ipvs.DestinationStatus) api.RealServer {
	d := ipvs.DestinationStatus{Destination: s.Destination}
	d.Weight = 0
	if old != nil {
		d.Conns.Persistent, d.Stats = old.Conns.Persistent, old.Stats
	}
	key := ipvs.DestinationKey{Service: k, Address: s.Address}
	c, present := r.counts.conns(key)
	if present {
		d.Weight, d.Conns.Active, d.Conns.Inactive = c.Weight, c.Conns.Active, c.Conns.Inactive
	}
	a := api.TableRealServer(d)
	a.Present = present
	a.ConfiguredWeight = s.Configured
	a.State, a.Reason = string(s.State), s.Reason
	a.Backup, a.Ramping = s.Backup, s.Ramping
	a.HealthIgnored = s.Health == fleet.Down && s.Gate == fleet.GateOpen
	if o, ok := r.view.admin[key]; ok {
		a.Admin = adminOf(o, r.now)
	}
	if since, ok := r.view.since[key]; ok {
		a.StateSeconds = r.now.Sub(since.at).Seconds()
	}
	if s.State == fleet.Draining {
		left := fmt.Sprintf("%d active connections", a.Active)
		if fleet.Quiet(k) {
			left = fmt.Sprintf("%d connections", a.Active+a.Inactive)
		}
		a.Reason += fmt.Sprintf("; %s, deleted in %v at the latest", left, max(0, s.Deadline.Sub(r.now)).Round(time.Second))
	}
	for _, p := range s.Probes {
		a.Checks = append(a.Checks, r.check(p))
	}
	return a
}

func (r *reading) check(p healthcheck.Probe) api.Check {
	st := r.probes[p.Key()]
	c := api.Check{
		Probe:          fleet.Label(p),
		State:          st.State.String(),
		Detail:         st.Last.Detail,
		Warning:        st.Warning,
		LatencySeconds: st.Last.Latency.Seconds(),
		AgeSeconds:     age(r.now, st.LastTime),
		Checks:         st.Checks,
		Failures:       st.Failures,
	}
	if st.LastErr != nil {
		c.Detail = st.LastErr.Error()
	}
	return c
}

// foreignService describes a service of which lbd knows only what the table
// says.
func foreignService(e ipvs.TableEntry) api.Service {
	a := api.TableService(e)
	a.Foreign = true
	for i := range a.RealServers {
		a.RealServers[i].ConfiguredWeight = a.RealServers[i].ProgrammedWeight
		a.RealServers[i].Reason = "not lbd's"
	}
	return a
}
