package userspace

import (
	"context"
	"slices"

	"github.com/lbd-project/lbd/internal/conntrack"
)

// tidy does what follows from deleted and quiesced real servers: templates that
// lead to them go from the rules, and with expire_nodest_conn their flows and
// templates end. What fails is tried again by the next tidy. The write lock is
// held.
func (e *Engine) tidy(ctx context.Context) {
	e.forgetTemplates(ctx)
	if !e.sysctls.expireNodestConn || len(e.model.dead) == 0 {
		return
	}
	var routedMarks []uint32
	for _, s := range e.model.dead {
		e.mu.Lock()
		flows := s.flows
		e.mu.Unlock()
		if flows == 0 {
			continue
		}
		if routed(&s.Destination) {
			routedMarks = append(routedMarks, e.marks.of(s.id))
			continue
		}
		// The events of it count the flows no more, and a resync those that make none.
		err := e.table.Delete(ctx, conntrack.Filter{Mark: e.marks.of(s.id), MarkMask: e.marks.mask})
		if err != nil {
			e.log.Warn("end the connections of a deleted real server", "service", s.service.ServiceKey, "real_server", s.Address, "err", err)
		}
		if s.ends.quiet {
			e.resyncNow()
		}
	}
	if len(routedMarks) > 0 {
		if err := e.rules.DeleteFlows(ctx, routedMarks...); err != nil {
			e.log.Warn("end the connections of deleted real servers", "err", err)
		}
	}
	e.expireTemplates()
}

// forgetTemplates deletes the rules' templates of real servers that may get no
// more clients by them. Those of the engine are looked at when they are used. The
// service of a deleted one may have been persistent once, or be one that only the
// store tells of, so all of them count.
func (e *Engine) forgetTemplates(ctx context.Context) {
	var gone []*server
	var marks []uint32
	note := func(s *server) {
		if !s.forgotten {
			gone, marks = append(gone, s), append(marks, e.marks.of(s.id))
		}
	}
	for _, s := range e.model.dead {
		note(s)
	}
	for _, svc := range e.model.services {
		if !svc.persistent() {
			continue
		}
		for _, s := range svc.servers {
			if e.sysctls.expireQuiescentTemplate && s.Weight == 0 {
				note(s)
			} else {
				s.forgotten = false
			}
		}
	}
	if len(gone) == 0 {
		return
	}
	if err := e.rules.DeleteTemplates(ctx, 0, marks...); err != nil {
		e.log.Warn("delete persistence templates from the rules", "err", err)
		return
	}
	for _, s := range gone {
		s.forgotten = true
	}
}

// retire gives back the marks of deleted real servers that have no flows and no
// templates. The last resync began after they were deleted and no packet was
// still on its way to them, so conntrack has none either. The write lock is held.
func (e *Engine) retire(ctx context.Context) error {
	e.mu.Lock()
	var gone []*server
	for _, s := range e.model.dead {
		if s.flows == 0 && s.templates == 0 && s.forgotten && e.everSynced && int32(e.synced-s.died) > settleTicks {
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
	if err := e.programKept(ctx, st); err != nil {
		e.stale = true
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range gone {
		if s.flows != 0 || s.templates != 0 {
			e.stale = true // one more came meanwhile
			continue
		}
		e.model.retire(s)
	}
	return nil
}
