package userspace

import (
	"context"

	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// Flows of real servers that get packets as they are, by direct routing or in a
// tunnel: connection tracking does not know them, and makes no events of them. The
// rules keep them in a map, which is read in its place; the first packet that
// closes comes through the queue.

// closeRouted counts a flow as inactive whose client closes.
func (e *Engine) closeRouted(t *flow.Tuple) {
	f := e.flows.Get(t)
	if f == nil {
		return
	}
	if s := e.model.server(f.Server); s != nil && routed(&s.Destination) && f.State == sched.Active {
		e.move(f, s, sched.Inactive, false)
	}
}

// dumpRouted takes in the flows that the rules have. At the start there may be
// some of real servers that no store tells of.
func (e *Engine) dumpRouted(ctx context.Context, c *census) error {
	e.mu.Lock()
	any := e.model.routed || e.starting
	e.mu.Unlock()
	if !any {
		return nil
	}
	return e.rules.Flows(ctx, func(v *ruleset.Flow) {
		e.mu.Lock()
		defer e.mu.Unlock()
		id := e.marks.id(v.Mark)
		s := e.model.server(id)
		if s == nil {
			c.strangers++
			if e.starting {
				e.model.ids.reserve(id) // as restoreFlow
			}
			return
		}
		e.seenRouted(v, s)
	})
}

// seenRouted takes in a flow that the rules have, which may be old news: it never
// brings a closing connection back, and tells nothing of one that was decided on
// a moment ago.
func (e *Engine) seenRouted(v *ruleset.Flow, s *server) {
	st := initialState(v.Protocol)
	if v.Protocol == uint8(ipvs.TCP) && v.Inactive {
		st = sched.Inactive
	}
	f, made := e.flows.Insert(&v.Tuple)
	switch {
	case made:
		e.adopt(f, s, st)
	case f.Server == s.id:
		f.Generation = e.generation
		if st == sched.Inactive {
			e.move(f, s, st, false)
		}
	case e.tick-f.Born > settleTicks:
		e.release(f, lost)
		f, _ = e.flows.Insert(&v.Tuple)
		e.adopt(f, s, st)
	}
}
