package userspace

import (
	"context"
	"slices"

	"github.com/lbd-project/lbd/internal/conntrack"
)

// tidy does what follows from deleted and quiesced real servers: templates that
// lead to them go from the rules, and with expire_nodest_conn their flows go from
// conntrack. What fails is tried again by the next tidy. The write lock is held.
func (e *Engine) tidy(ctx context.Context) {
	for _, s := range e.model.dead {
		if s.service.persistent() && !s.forgotten {
			err := e.rules.DeleteTemplates(ctx, s.service.id, e.marks.of(s.id))
			if err != nil {
				e.log.Warn("delete persistence templates of a deleted real server", "service", s.service.ServiceKey, "real_server", s.Address, "err", err)
			}
			s.forgotten = err == nil
		}
		if e.sysctls.expireNodestConn {
			e.expireNodest(ctx, s)
		}
	}
	if e.sysctls.expireQuiescentTemplate {
		e.expireQuiescent(ctx)
	}
}

// expireNodest ends the flows and templates of a deleted real server: the next
// packet of the client finds no connection.
func (e *Engine) expireNodest(ctx context.Context, s *server) {
	e.mu.Lock()
	flows := s.flows
	if s.templates > 0 {
		for n := range e.templates.list {
			if t := &e.templates.list[n]; t.server == s {
				t.expires = 0
				e.makeStale(uint32(n))
			}
		}
		e.expireTemplates()
	}
	e.mu.Unlock()
	if flows == 0 {
		return
	}
	// The events of it count the flows no more.
	err := e.table.Delete(ctx, conntrack.Filter{Mark: e.marks.of(s.id), MarkMask: e.marks.mask})
	if err != nil {
		e.log.Warn("end the connections of a deleted real server", "service", s.service.ServiceKey, "real_server", s.Address, "err", err)
	}
}

// expireQuiescent deletes the rules' templates of real servers with weight 0.
// Those of the engine are looked at when they are used.
func (e *Engine) expireQuiescent(ctx context.Context) {
	for _, svc := range e.model.services {
		if !svc.persistent() {
			continue
		}
		for _, s := range svc.servers {
			if s.Weight != 0 {
				s.forgotten = false
				continue
			}
			if s.forgotten {
				continue
			}
			err := e.rules.DeleteTemplates(ctx, svc.id, e.marks.of(s.id))
			if err != nil {
				e.log.Warn("delete persistence templates of a quiesced real server", "service", svc.ServiceKey, "real_server", s.Address, "err", err)
			}
			s.forgotten = err == nil
		}
	}
}

// retire gives back the marks of deleted real servers that have no flows. The
// last resync began after they were deleted and no packet was still on its way
// to them, so conntrack has none either. The write lock is held.
func (e *Engine) retire(ctx context.Context) error {
	e.mu.Lock()
	var gone []*server
	for _, s := range e.model.dead {
		if s.flows == 0 && s.templates == 0 && e.everSynced && int32(e.synced-s.died) > settleTicks {
			gone = append(gone, s)
		}
	}
	e.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	st := e.current()
	st.dead = slices.DeleteFunc(st.dead, func(d deadState) bool {
		return slices.ContainsFunc(gone, func(s *server) bool { return s.id == d.id })
	})
	if err := e.program(ctx, st); err != nil {
		e.stale = true
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range gone {
		e.model.retire(s)
	}
	return nil
}
