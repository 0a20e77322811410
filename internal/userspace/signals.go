package userspace

import (
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// unknownSince is when a request began of which that was not seen.
const unknownSince = -1

// signal takes in whether a request of a flow waits for its answer. The rules set
// a bit of the connection's mark with the client's data and clear it with the
// server's, for services whose scheduler asks for it; each change is an event.
// The time between two is the response time, as finely as events are read: with
// each decision on such a service, and every few milliseconds.
func (e *Engine) signal(ev *conntrack.Event, s *server, st sched.State) {
	if !s.service.signals && len(e.requests) == 0 {
		return
	}
	waits := ev.Mark&e.busy != 0
	if ev.Orig.Protocol == uint8(ipvs.TCP) && st == sched.Inactive {
		// No answer comes any more that would count.
		e.endRequest(&ev.Orig, s, false)
		return
	}
	_, was := e.requests[ev.Orig]
	switch {
	case waits && !was:
		since := e.now
		if ev.Kind != conntrack.Update {
			since = unknownSince
		}
		e.requests[ev.Orig] = since
		s.service.table.Request(s.sched, 1)
	case !waits && was:
		e.endRequest(&ev.Orig, s, ev.Kind == conntrack.Update)
	}
}

// endRequest ends the request of a flow, if there is one; answered says that an
// event told of the answer.
func (e *Engine) endRequest(t *flow.Tuple, s *server, answered bool) {
	since, was := e.requests[*t]
	if !was {
		return
	}
	delete(e.requests, *t)
	if !s.service.table.Request(s.sched, -1) {
		e.underflow(s)
	}
	if answered && since != unknownSince {
		s.service.table.Observe(s.sched, max(e.now-since, time.Microsecond))
	}
}
