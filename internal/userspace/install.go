package userspace

import (
	"net/netip"

	"github.com/lbd-project/lbd/sched"
)

// install makes the model what the plan says. Both locks are held.
func (e *Engine) install(p *plan) {
	m := &e.model
	for _, d := range p.order {
		if old := m.services[d.ServiceKey]; old != nil && d.was == nil || !d.exists {
			e.uninstall(old)
		}
		if !d.exists {
			continue
		}
		svc := d.was
		if svc == nil {
			svc = &service{id: d.id, table: d.table}
			m.services[d.ServiceKey] = svc
			m.serviceIDs.reserve(d.id) // uninstall may have given it back
		} else if !sameScheduler(&svc.Service, &d.Service) {
			e.reschedule(svc, d)
		}
		svc.Service = d.Service
		svc.signals = readsSignals(d.Scheduler)
		e.installServers(svc, d)
	}
	m.noteKinds()
}

// uninstall deletes a service, nil for none, with its real servers.
func (e *Engine) uninstall(svc *service) {
	if svc == nil {
		return
	}
	for _, s := range svc.servers {
		e.kill(s)
	}
	delete(e.model.services, svc.ServiceKey)
	e.model.releaseService(svc)
}

// reschedule gives a service the scheduler of its draft, in place.
func (e *Engine) reschedule(svc *service, d *draft) {
	name, o, err := e.scheduler(&d.Service)
	if err == nil {
		err = svc.table.Reset(name, o)
	}
	if err != nil { // it was tried when it was planned
		e.log.Error("change the scheduler", "service", svc.ServiceKey, "scheduler", d.Scheduler, "err", err)
	}
}

func (e *Engine) installServers(svc *service, d *draft) {
	for _, s := range d.servers {
		if s.deleted && s.was != nil && !s.was.dead {
			e.kill(s.was)
		}
	}
	svc.servers = make([]*server, 0, len(d.index))
	svc.index = make(map[netip.AddrPort]*server, len(d.index))
	for _, sd := range d.servers {
		if sd.deleted {
			continue
		}
		s := sd.was
		switch {
		case s != nil:
			s.Destination = sd.Destination
			if c := schedConfig(&sd.Destination); s.sched.Config() != c {
				svc.table.Update(s.sched, c)
			}
		case sd.revived != nil:
			s = sd.revived
			e.revive(s, svc, sd)
		default:
			s = &server{Destination: sd.Destination, service: svc, id: sd.id}
			s.sched = sched.NewServer(s.id, s.Address, schedConfig(&s.Destination))
			e.model.setServer(s.id, s)
			svc.table.Insert(s.sched)
		}
		svc.servers = append(svc.servers, s)
		svc.index[s.Address] = s
	}
}

// kill takes a real server out of its service. It stays among the dead as long
// as flows of it may live.
func (e *Engine) kill(s *server) {
	s.service.table.Remove(s.sched)
	s.dead, s.died, s.forgotten = true, e.tick, false
	e.model.dead[s.key()] = s
}

// revive puts a dead real server back with its flows. Its statistics start
// afresh, as in the kernel.
func (e *Engine) revive(s *server, svc *service, d *serverDraft) {
	delete(e.model.dead, s.key())
	s.dead, s.service, s.Destination = false, svc, d.Destination
	s.traffic = traffic{}
	svc.table.Update(s.sched, schedConfig(&s.Destination))
	svc.table.Insert(s.sched)
}
