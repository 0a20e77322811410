package userspace

import (
	"time"

	"github.com/lbd-project/lbd/internal/userspace/flowtable"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// A connection that closes by FIN makes no event at its end, where nothing needs
// to know of it at once (quiet). That it is gone shows when its tuple is used
// again, or in a dump. Until then time tells how many are: conntrack forgets a
// closed connection when its time is over.

const (
	// ctTimeWait is how long conntrack keeps a connection that has closed, where the
	// rules do not say.
	ctTimeWait = "net/netfilter/nf_conntrack_tcp_timeout_time_wait"
	// endStep is how finely ends are known.
	endStep = time.Second
)

// ends is what is known of the quiet ends of a real server's connections. Of all
// connections of its that the table of flows has,
//
//	flows = active + inactive + over
//
// holds at any time.
type ends struct {
	// quiet says that there were such closings, since this engine began.
	quiet bool
	// due are closings by the time when conntrack forgets the connection, the first
	// one first; waiting is their sum, of connections that count as inactive.
	due     []ending
	waiting int
	// over are flows that count no more, since their time is over, and are in the
	// table still; lately those of them since the dump that runs began.
	over, lately int
}

type ending struct {
	at time.Duration
	n  int
}

// quiet says whether connections of a real server may end without an event. Those
// of persistent services hold their template until they end; where there are
// thresholds it must be known when there is room again; signals are events anyway.
func quiet(s *ipvs.Service, d *ipvs.Destination) bool {
	return s.Flags&ipvs.FlagPersistent == 0 && !readsSignals(s.Scheduler) && !routed(d) &&
		d.UpperThreshold == 0 && d.LowerThreshold == 0
}

// add notes closings that are forgotten at a time.
func (e *ends) add(n int, at time.Duration) {
	e.quiet = true
	if n == 0 {
		return
	}
	e.waiting += n
	if last := len(e.due) - 1; last >= 0 && at <= e.due[last].at {
		e.due[last].n += n
		return
	}
	e.due = append(e.due, ending{at, n})
}

// drop takes back one closing, if any waits: that of the first to be forgotten.
func (e *ends) drop() {
	if e.waiting == 0 {
		return
	}
	e.waiting--
	if e.due[0].n--; e.due[0].n == 0 {
		e.due = e.due[1:]
	}
}

// bound takes closings back that are of no connection that counts as inactive, the
// last ones: a client made its connection another one by a SYN after it had closed,
// and may do so again and again.
func (s *server) bound() {
	e := &s.ends
	for e.waiting > int(s.sched.Inactive()) {
		last := len(e.due) - 1
		n := min(e.waiting-int(s.sched.Inactive()), e.due[last].n)
		e.waiting -= n
		if e.due[last].n -= n; e.due[last].n == 0 {
			e.due = e.due[:last]
		}
	}
}

// from returns how a flow is counted: an inactive one not at all, where only those
// are left in the table whose time is over.
func (s *server) from(st sched.State) sched.State {
	if st == sched.Inactive && s.sched.Inactive() == 0 && s.ends.over > 0 {
		s.ends.over--
		return sched.Uncounted
	}
	return st
}

// found returns how a flow was counted that is found gone, and that was from
// before. Where time had told of ends, this is one of those.
func (s *server) found(from sched.State) sched.State {
	e := &s.ends
	if from == sched.Inactive && e.over > 0 {
		e.over--
		return sched.Uncounted
	}
	e.drop()
	return from
}

// expire counts the connections no more whose time is over.
func (s *server) expire(now time.Duration) {
	e := &s.ends
	for len(e.due) > 0 && e.due[0].at <= now {
		n := e.due[0].n
		e.due = e.due[1:]
		e.waiting -= n
		n = min(n, int(s.sched.Inactive()))
		e.over += n
		e.lately += n
		for range n {
			s.service.table.Count(s.sched, sched.Inactive, sched.Uncounted)
		}
	}
}

// dumped makes good what time said and a complete dump did not: what is in the
// table now has not ended, but for what did while the dump ran. Of closings that
// wait some may be of flows that were gone before these were counted, and of entries
// that carry another connection now.
func (s *server) dumped() {
	e := &s.ends
	for ; e.over > e.lately; e.over-- {
		s.service.table.Count(s.sched, sched.Uncounted, sched.Inactive)
	}
	for e.waiting > int(s.sched.Inactive()) {
		e.drop()
	}
}

// expireQuiet counts what has ended by now. mu is held.
func (e *Engine) expireQuiet() {
	if e.now < e.endsNext {
		return
	}
	e.endsNext = e.now + endStep
	for _, s := range e.model.servers {
		if s != nil && len(s.ends.due) > 0 {
			s.expire(e.now)
		}
	}
}

// forgottenAt returns when conntrack forgets what closes now, in steps.
func (e *Engine) forgottenAt() time.Duration {
	step := max(endStep, e.timeWait/128)
	return (e.now+e.timeWait)/step*step + step
}

// outcome is what is known of a flow that is gone.
type outcome uint8

const (
	lost    outcome = iota // it never was in conntrack, or nobody knows
	closed                 // it had closed, and its event told
	quietly                // it had closed, and nothing told
)

// missing returns what became of a flow that is gone without an event.
func (e *Engine) missing(f *flowtable.Flow) outcome {
	t := f.Tuple()
	if s := e.model.server(f.Server); s != nil && s.ends.quiet && t.Protocol == uint8(ipvs.TCP) && !routed(&s.Destination) {
		return quietly
	}
	return lost
}
