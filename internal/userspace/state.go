package userspace

import (
	"maps"
	"slices"

	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
)

// state is what the rules are made of and what the store keeps: everything that
// somebody configured, with the numbers that the kernel knows it by.
type state struct {
	services []serviceState
	// dead are real servers that were deleted and may still have flows.
	dead []deadState
}

type serviceState struct {
	ipvs.Service
	id uint32
	// servers are in the order in which they were added.
	servers []serverState
}

type serverState struct {
	ipvs.Destination
	id uint32
}

type deadState struct {
	serverState
	service   ipvs.ServiceKey
	serviceID uint32
}

// state returns what there will be after the plan, services by key.
func (p *plan) state() state {
	m := &p.engine.model
	var st state
	keys := slices.Collect(maps.Keys(m.services))
	revived := make(map[*server]bool)
	for _, d := range p.order {
		if m.services[d.ServiceKey] == nil {
			keys = append(keys, d.ServiceKey)
		}
		for _, s := range d.servers {
			if !s.deleted && s.revived != nil {
				revived[s.revived] = true
			}
		}
	}
	slices.SortFunc(keys, ipvs.ServiceKey.Compare)
	dead := func(s *server) {
		if !revived[s] {
			st.dead = append(st.dead, deadState{serverState{s.Destination, s.id}, s.service.ServiceKey, s.service.id})
		}
	}
	for _, k := range keys {
		d := p.drafts[k]
		if d == nil {
			st.services = append(st.services, m.services[k].state())
			continue
		}
		for _, s := range d.servers {
			if s.deleted && s.was != nil {
				dead(s.was)
			}
		}
		if d.exists {
			st.services = append(st.services, d.state())
		}
	}
	for _, s := range m.dead {
		dead(s)
	}
	slices.SortFunc(st.dead, func(a, b deadState) int { return int(a.id) - int(b.id) })
	return st
}

func (s *service) state() serviceState {
	st := serviceState{Service: s.Service, id: s.id, servers: make([]serverState, len(s.servers))}
	for i, sv := range s.servers {
		st.servers[i] = serverState{sv.Destination, sv.id}
	}
	return st
}

func (d *draft) state() serviceState {
	st := serviceState{Service: d.Service, id: d.id}
	for _, s := range d.servers {
		if !s.deleted {
			st.servers = append(st.servers, serverState{s.Destination, s.id})
		}
	}
	return st
}

// routed says whether a real server gets packets as they are, so that connection
// tracking does not carry its flows.
func routed(d *ipvs.Destination) bool { return d.Forward != ipvs.Masq }

// ways say how the real servers of a service get their packets: carried by
// connection tracking, or as they are.
type ways struct{ tracked, routed bool }

// ways returns those of all services. Deleted real servers count, since their
// connections are there until they end.
func (st *state) ways() map[uint32]ways {
	all := make(map[uint32]ways, len(st.services))
	note := func(service uint32, d *ipvs.Destination) {
		w := all[service]
		if routed(d) {
			w.routed = true
		} else {
			w.tracked = true
		}
		all[service] = w
	}
	for i := range st.services {
		for j := range st.services[i].servers {
			note(st.services[i].id, &st.services[i].servers[j].Destination)
		}
	}
	for i := range st.dead {
		note(st.dead[i].serviceID, &st.dead[i].Destination)
	}
	return all
}

// spec returns the rules for a state.
func (e *Engine) spec(st *state) ruleset.Spec {
	spec := ruleset.Spec{
		Services:  make([]ruleset.Service, 0, len(st.services)),
		Timeouts:  e.timeouts,
		AllEvents: e.allEvents,
	}
	live, ways := make(map[uint32]bool, len(st.services)), st.ways()
	server := func(s *serverState, service uint32, quiet bool) {
		spec.Servers = append(spec.Servers, ruleset.Server{
			Service: service, Mark: e.marks.of(s.id), Address: s.Address, Forward: s.Forward, Tunnel: s.Tunnel, Quiet: quiet,
		})
	}
	for i := range st.services {
		s := &st.services[i]
		rs := ruleset.Service{
			ID: s.id, Key: s.ServiceKey,
			OnePacket:  onePacket(&s.Service),
			Persistent: s.Flags&ipvs.FlagPersistent != 0,
			Timeout:    s.Persistence.Timeout,
			Netmask:    s.Persistence.Netmask,
			Signals:    readsSignals(s.Scheduler),
			Passive:    e.passive.services[s.ServiceKey],
		}
		if w := ways[s.id]; w.routed {
			rs.Forward, rs.Mixed = ipvs.Route, w.tracked
		}
		for j := range s.servers {
			server(&s.servers[j], s.id, !e.allEvents && quiet(&s.Service, &s.servers[j].Destination))
			if w := s.servers[j].Weight; w > 0 {
				rs.Fallback = append(rs.Fallback, ruleset.Share{Mark: e.marks.of(s.servers[j].id), Weight: w})
			}
		}
		live[s.id] = true
		spec.Services = append(spec.Services, rs)
	}
	for i := range st.dead {
		d, service := &st.dead[i], uint32(0)
		if live[d.serviceID] {
			service = d.serviceID
		}
		server(&d.serverState, service, false) // it goes with its last flow
		spec.Dead = append(spec.Dead, e.marks.of(st.dead[i].id))
	}
	return spec
}
