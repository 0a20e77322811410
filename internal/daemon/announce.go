package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/reconcile"
	"github.com/lbd-project/lbd/ipvs"
)

// announcement is what the log last said of a real server.
type announcement struct {
	service string
	state   fleet.State
	weight  uint32
	present bool
	// ramping says that the weight is on its way.
	ramping bool
}

// takes says whether the table gives the real server new connections.
func (a announcement) takes() bool { return a.present && a.weight > 0 }

// differsInWeight says whether only the share of connections is another.
func (a announcement) differsInWeight(b announcement) bool {
	takes := a.takes() == b.takes()
	a.weight, a.ramping = b.weight, b.ramping
	return takes && a == b
}

// announce logs what changed for each real server and service, but not before the
// table has acknowledged it.
func (o *owner) announce(report reconcile.Report) {
	first := o.announced == nil
	if first {
		o.announced = make(map[ipvs.DestinationKey]announcement, o.fleet.Size())
	}
	known := 0 // of those announced, how many the fleet still has
	acked, now := report.Acknowledged(), time.Now()
	for i := range o.fleet.Services {
		s := &o.fleet.Services[i]
		for j := range s.Servers {
			rs := &s.Servers[j]
			k := ipvs.DestinationKey{Service: s.ServiceKey, Address: rs.Address}
			was, old := o.announced[k]
			is := announcement{s.Name, rs.State, rs.Weight, rs.Present, rs.Ramping}
			if old {
				known++
			}
			if was == is || !acked(k) {
				continue
			}
			// Asked first: a start has as many of these as there are servers.
			ctx, level := context.Background(), announceLevel(was, is, old, first)
			reason := rs.Reason
			if level >= slog.LevelInfo && old && is.differsInWeight(was) {
				note, ok := o.tellWeight(k, is.weight, now)
				if !ok {
					continue // a later pass tells what it is by then
				}
				reason += note
			}
			o.announced[k] = is
			if !old {
				known++
			}
			if level >= slog.LevelInfo {
				o.events.add(api.Event{
					Kind: api.EventServer, Service: s.Name, Key: s.ServiceKey.String(), RealServer: rs.Address.String(), State: string(rs.State),
					Text: fmt.Sprintf("%s, weight %d", rs.State, rs.Weight), Reason: reason,
				})
			}
			if o.log.Enabled(ctx, level) {
				o.log.Log(ctx, level, "real server "+string(rs.State),
					"service", s.Name, "real_server", rs.Address, "weight", rs.Weight,
					"present", rs.Present, "reason", reason)
			}
		}
	}
	if known < len(o.announced) {
		o.announceGone(acked)
	}
	o.announceUsable()
}

// announceGone logs which real servers the fleet has no more, once the table has not.
func (o *owner) announceGone(acked func(ipvs.DestinationKey) bool) {
	there := make(map[ipvs.DestinationKey]struct{}, len(o.announced))
	for i := range o.fleet.Services {
		s := &o.fleet.Services[i]
		for j := range s.Servers {
			there[ipvs.DestinationKey{Service: s.ServiceKey, Address: s.Servers[j].Address}] = struct{}{}
		}
	}
	for k, was := range o.announced {
		if _, ok := there[k]; ok || !acked(k) {
			continue
		}
		delete(o.announced, k)
		delete(o.weightNews, k)
		delete(o.warned, k)
		o.log.Info("real server gone", "service", was.service, "real_server", k.Address)
		o.events.add(api.Event{
			Kind: api.EventServer, Service: was.service, Key: k.Service.String(), RealServer: k.Address.String(), State: api.StateGone,
			Text: "gone", Reason: "left the configuration",
		})
	}
}

// announceUsable logs which services lost their last usable real server, or have
// one again, going by what has been announced of the servers. Of a new service
// without one only a failure is news: the rest is as the configuration says.
func (o *owner) announceUsable() {
	next := make(map[ipvs.ServiceKey]bool, len(o.usable))
	for i := range o.fleet.Services {
		s := &o.fleet.Services[i]
		if s.Leaving {
			continue
		}
		is, down, told := false, false, false
		for j := 0; j < len(s.Servers) && !is; j++ {
			a, ok := o.announced[ipvs.DestinationKey{Service: s.ServiceKey, Address: s.Servers[j].Address}]
			is = a.takes()
			down = down || a.state == fleet.Down
			told = told || ok
		}
		was, known := o.usable[s.ServiceKey]
		if !known && !told {
			continue // the table has not taken it yet
		}
		switch {
		case !is && (was || !known && down):
			o.log.Warn("virtual service has no usable real server", "service", s.Name)
			o.events.add(api.Event{Kind: api.EventService, Service: s.Name, Key: s.ServiceKey.String(), State: api.StateUnusable, Text: "no usable real server"})
		case is && known && !was:
			o.log.Info("virtual service has a usable real server again", "service", s.Name)
			o.events.add(api.Event{Kind: api.EventService, Service: s.Name, Key: s.ServiceKey.String(), State: api.StateUsable, Text: "a usable real server again"})
		}
		next[s.ServiceKey] = is
	}
	o.usable = next
}

// alertStates are the states of the events of alerts.
var alertStates = map[fleet.AlertKind]string{
	fleet.AlertQuorumHeld: api.StateQuorumHeld, fleet.AlertQuorumLost: api.StateQuorumLost,
	fleet.AlertBackupIn: api.StateBackupIn, fleet.AlertBackupOut: api.StateBackupOut,
	fleet.AlertFailOpenBegin: api.StateHealthIgnored, fleet.AlertFailOpenEnd: api.StateHealthHeeded,
}

// announceAlerts logs what happened to services as a whole.
func (o *owner) announceAlerts() {
	for _, a := range o.alerts {
		level := slog.LevelInfo
		switch a.Kind {
		case fleet.AlertQuorumLost, fleet.AlertBackupIn, fleet.AlertFailOpenBegin:
			level = slog.LevelWarn
		case fleet.AlertQuorumHeld:
			if a.First {
				level = slog.LevelDebug // as it should be
			}
		}
		o.log.Log(context.Background(), level, a.Kind.String(), "service", a.Service, "reason", a.Reason)
		if level >= slog.LevelInfo {
			o.events.add(api.Event{
				Kind: api.EventService, Service: a.Service, Key: a.Key.String(), State: alertStates[a.Kind], Text: a.Kind.String(), Reason: a.Reason,
			})
		}
	}
	o.alerts = nil
}

// announceLevel keeps the log of a start and of first results short: that a
// server is as good as it was taken to be is no news.
func announceLevel(was, is announcement, known, first bool) slog.Level {
	good := func(s fleet.State) bool { return s == fleet.Up || s == fleet.Pending || s == fleet.Unchecked }
	if good(is.state) && (first || known && good(was.state) && was.weight == is.weight) {
		return slog.LevelDebug
	}
	// Of a weight on its way the beginning has been said.
	if known && was.state == is.state && was.present == is.present && was.ramping {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
