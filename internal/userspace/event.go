package userspace

import (
	"errors"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/userspace/flowtable"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// The states of TCP and SCTP in conntrack that say how a flow is counted:
// include/uapi/linux/netfilter/nf_conntrack_tcp.h and nf_conntrack_sctp.h.
const (
	tcpSynSent  = 1 // TCP_CONNTRACK_SYN_SENT
	tcpSynRecv  = 2 // TCP_CONNTRACK_SYN_RECV
	tcpSynSent2 = 9 // TCP_CONNTRACK_SYN_SENT2
	tcpFinWait  = 4 // TCP_CONNTRACK_FIN_WAIT
	tcpTimeWait = 7 // TCP_CONNTRACK_TIME_WAIT
	tcpClose    = 8 // TCP_CONNTRACK_CLOSE

	sctpEstablished = 4 // SCTP_CONNTRACK_ESTABLISHED
)

// drain takes in the events that wait, and says whether there were any. mu is held.
func (e *Engine) drain() (some bool) {
	for {
		n, err := e.events.Drain(e.onEvent)
		some = some || n > 0
		switch {
		case errors.Is(err, conntrack.ErrOverrun):
			e.overruns++
			e.resyncNow()
		case err != nil:
			e.eventError = err
			e.resyncNow()
			return some
		case n < conntrack.DrainLimit:
			e.eventError = nil
			return some
		}
	}
}

// event takes in what happened to a flow. It changes counts through the table
// alone, so that an event that comes twice, late or never does no harm beyond
// the next resync.
func (e *Engine) event(ev *conntrack.Event) {
	e.heard++
	s := e.serverOf(ev)
	if s == nil {
		return
	}
	if e.resyncing {
		e.overtaken[e.entry(ev.ID, &ev.Orig)] = true
	}
	if ev.Kind != conntrack.Destroy {
		e.seen(ev, s, false)
		return
	}
	f := e.flows.Get(&ev.Orig)
	// The end of an earlier flow of the tuple ends no later one.
	if f == nil || f.Server != s.id {
		return
	}
	if ev.Mark&e.inactive != 0 {
		e.release(f, closed)
		return
	}
	e.abort(f)
	e.release(f, lost)
}

// serverOf returns the real server of a flow, nil for a flow that is not ours.
func (e *Engine) serverOf(ev *conntrack.Event) *server {
	id := e.marks.id(ev.Mark)
	if id == 0 {
		return nil
	}
	return e.model.server(id)
}

// seen takes in a flow that conntrack has, by an event or a dump.
func (e *Engine) seen(ev *conntrack.Event, s *server, dumped bool) {
	st := e.stateOf(ev)
	f, made := e.flows.Insert(&ev.Orig)
	switch {
	case made:
		e.adopt(f, s, st)
		if ev.Kind == conntrack.New && !dumped && !e.starting {
			e.unasked++
		}
		f.Reused = ev.Mark&e.reuse != 0
	case f.Server != s.id:
		if e.tick-f.Born <= settleTicks {
			return // what was decided a moment ago is not in conntrack yet
		}
		e.release(f, e.missing(f))
		f, _ = e.flows.Insert(&ev.Orig)
		e.adopt(f, s, st)
		f.Reused = ev.Mark&e.reuse != 0
	default:
		f.Generation = e.generation
		again := ev.Mark&e.reuse != 0
		if again != f.Reused {
			f.Reused = again
			e.reopened(f, s)
		}
		if ev.Orig.Protocol == uint8(ipvs.SCTP) && ev.SCTPState == 0 {
			st = f.State // an event of something else does not tell
		}
		if f.State == sched.Inactive && st == sched.Active && ev.Orig.Protocol == uint8(ipvs.TCP) {
			// A closed connection does not open again: conntrack goes on with the
			// entry for the next one from the client's port.
			e.countConnection(s.service, s)
		}
		e.move(f, s, st, ev.Mark&e.inactive != 0)
	}
	e.signal(ev, s, dumped)
}

// move counts a flow in another state. counted says that it closed and that the
// rules count that.
func (e *Engine) move(f *flowtable.Flow, s *server, st sched.State, counted bool) {
	if f.State == st {
		return
	}
	from := s.from(s.unwatch(f, counted))
	if !s.service.table.Count(s.sched, from, st) {
		e.underflow(s)
	}
	f.State = st
	t := f.Tuple()
	s.watch(f, t.Protocol)
}

// adopt fills in a flow that nobody here decided on: one of the rules that
// balance without lbd, or one that was there before.
func (e *Engine) adopt(f *flowtable.Flow, s *server, st sched.State) {
	f.Server, f.State, f.Generation = s.id, st, e.generation
	f.Born = e.tick - settleTicks - 1 // the kernel has it
	s.flows++
	s.service.table.Count(s.sched, sched.Uncounted, st)
	t := f.Tuple()
	s.watch(f, t.Protocol)
	if !e.starting {
		e.countConnection(s.service, s)
	}
	if s.service.persistent() {
		n := e.adoptTemplate(s, t.Src(), s.service.Persistence.Timeout)
		if e.templates.list[n].server == s {
			f.Template = n
			e.templates.list[n].flows++
		}
	}
}

// stateOf returns how a flow is counted, as the kernel's IPVS would count it:
// TCP is inactive from the first FIN on, or an RST that the real server's side
// has a part in.
func (e *Engine) stateOf(ev *conntrack.Event) sched.State {
	switch ev.Orig.Protocol {
	case uint8(ipvs.TCP):
		closing := ev.Mark&e.inactive != 0 || ev.TCPState >= tcpFinWait && ev.TCPState <= tcpTimeWait ||
			ev.TCPState == tcpClose
		// An RST of the client before anything came back changes nothing
		// (ip_vs_proto_tcp.c, sSR with an RST from the client).
		if closing && ev.Status&conntrack.StatusSeenReply != 0 {
			return sched.Inactive
		}
		return sched.Active
	case uint8(ipvs.SCTP):
		if ev.SCTPState == sctpEstablished {
			return sched.Active
		}
	}
	return sched.Inactive
}

// underflow notes a count that would have gone below 0: a leak that ought not to
// be.
func (e *Engine) underflow(s *server) {
	e.underflows++
	if e.underflows <= maxUnderflowLogs {
		e.log.Error("a connection count would have gone below 0", "service", s.service.ServiceKey, "real_server", s.Address)
	}
}

const maxUnderflowLogs = 10
