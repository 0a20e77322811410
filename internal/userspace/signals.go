package userspace

import (
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// maxResponse is the longest response time that says something of a server:
// beyond it a connection was idle more likely.
const maxResponse = time.Minute

// request is one that waits for its answer.
type request struct {
	// timed says that an event told of its begin: since on the engine's clock, at
	// on the kernel's in nanoseconds, 0 where kernels tell no time.
	timed bool
	since time.Duration
	at    int64
}

// signal takes in whether a request of a flow waits for its answer. The rules set
// a bit of the connection's mark with the client's data and clear it with the
// server's, for services whose scheduler asks for it; each change is an event
// (docs/decisions/0007-request-signals.md). dumped says that a dump told of the
// flow: then it is not known since when.
func (e *Engine) signal(ev *conntrack.Event, s *server, dumped bool) {
	if !s.service.signals && len(e.requests) == 0 {
		return
	}
	waits := ev.Mark&e.busy != 0
	_, was := e.requests[ev.Orig]
	switch {
	case waits && !was:
		var r request
		if !dumped {
			r = request{true, e.now, ev.At}
		}
		e.requests[ev.Orig] = r
		s.service.table.Request(s.sched, 1)
	case !waits && was:
		d := e.endRequest(&ev.Orig, s, ev.At)
		// Who closes in the place of an answer may be the client.
		closed := ev.Orig.Protocol == uint8(ipvs.TCP) && e.stateOf(ev) == sched.Inactive
		if !dumped && !closed && d > 0 && d <= maxResponse {
			s.service.table.Observe(s.sched, d)
		}
	}
}

// endRequest ends the request of a flow, if there is one, and returns how long it
// took; 0 if that is not known. at is the time by the kernel's clock, or 0.
func (e *Engine) endRequest(t *flow.Tuple, s *server, at int64) time.Duration {
	r, was := e.requests[*t]
	if !was {
		return 0
	}
	delete(e.requests, *t)
	if !s.service.table.Request(s.sched, -1) {
		e.underflow(s)
	}
	switch {
	case !r.timed:
		return 0
	case r.at != 0 && at > r.at:
		return time.Duration(at - r.at)
	}
	// As finely as events are read. On average that is right.
	return max(e.now-r.since, time.Microsecond)
}
