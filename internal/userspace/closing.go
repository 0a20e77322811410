package userspace

import (
	"fmt"
	"time"

	"github.com/lbd-project/lbd/internal/userspace/flowtable"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// That a TCP connection closes is counted by the rules, with a counter for each
// real server (ruleset.Rules.Closed): an event of each would cost more than the
// decision does. So it is known soon how many of a server's connections are
// inactive, and which ones by and by: at their ends, by events of something else,
// by a dump.

const (
	// closedShare bounds what reading the counters takes: 2 % of the time.
	closedShare = 50
	// idleRead is how often they are read at most where nothing asks for them.
	idleRead = 100 * time.Millisecond
)

// closing is what is known of a real server's connections that close.
type closing struct {
	// open are the flows in the table that may have closed without a word.
	open int
	// ahead is how many closings the rules have counted beyond the flows that are
	// known to be closed, so that as many of the open ones are counted as
	// inactive. It is at most open, and below 0 where flows are known to be
	// closed and their counter was not read yet.
	ahead int
	// during are the closings since the dump that runs began.
	during int
	// read is the rules' counter as last read, quiet that of those without an event
	// at their end.
	read, quiet uint64
}

// watch notes a flow that begins. Its closing is counted by the rules where these
// carry a TCP connection.
func (s *server) watch(f *flowtable.Flow, protocol uint8) {
	f.Open = f.State == sched.Active && protocol == uint8(ipvs.TCP) && !routed(&s.Destination)
	if f.Open {
		s.closing.open++
	}
}

// unwatch notes that a flow is not open any more, and returns how it was counted
// until now. counted says that it closed and that the rules count that.
func (s *server) unwatch(f *flowtable.Flow, counted bool) sched.State {
	if !f.Open {
		return f.State
	}
	f.Open = false
	c := &s.closing
	c.open--
	ahead := c.ahead
	if counted {
		c.ahead--
	}
	c.ahead = min(c.ahead, c.open)
	if ahead > 0 && c.ahead < ahead {
		return sched.Inactive
	}
	return sched.Active
}

// readClosed reads the rules' counters. The events that wait are taken in first:
// a flow is known before it closes.
func (e *Engine) readClosed() {
	start := e.clock()
	e.drain()
	e.closedError = e.rules.Closed(e.onClosed)
	end := e.clock()
	e.closedDue = false
	e.closedAt = end
	e.closedNext = end + closedShare*(end-start)
	if e.closedError != nil {
		e.closedErrors++
	}
}

// closed takes in how many connections of a mark have closed ever.
func (e *Engine) closed(mark uint32, n uint64, quiet bool) {
	s := e.model.server(e.marks.id(mark))
	if s == nil {
		return
	}
	last := &s.closing.read
	if quiet {
		last = &s.closing.quiet
	}
	more := n - *last
	if n < *last {
		more = n // the counter began again
	}
	*last = n
	if more == 0 {
		return
	}
	closed := s.close(more)
	if quiet {
		s.ends.add(closed, e.forgottenAt())
		s.bound() // some may be of connections that are other ones already
	}
}

// unsure says that a real server without new connections may have an active one
// though none is counted: the rules count a closing twice where both sides close in
// the same moment. The next dump tells.
func (s *server) unsure() bool {
	return s.Weight == 0 && s.sched.Active() == 0 && s.closing.ahead > 0
}

// A client may send what looks like something else. Where its SYN looks like a copy
// of the one before, its connection may have closed and be open again: the rules have
// counted that closing, which is taken for one of another connection of the real
// server. Where it sends two SYNs at once, the first did not close, as the second
// says. So few may be wrong, and then a dump tells: doubtful, and one of
// doubtfulShare flows in the table.
const (
	doubtful      = 64
	doubtfulShare = 256
	// atOnceTicks is the age of a flow whose first packet may not be in conntrack
	// yet.
	atOnceTicks = 1
)

// doubt notes that a closing may be taken for another's, or another's for that of a
// flow. Dumps that follow keep to their share of the time, however often a client
// does that.
func (e *Engine) doubt(s *server, f *flowtable.Flow) {
	if !f.Open || s.closing.ahead <= 0 {
		return
	}
	if e.doubts++; e.doubts > doubtful+e.flows.Len()/doubtfulShare {
		e.doubts = 0
		e.resyncNow()
	}
}

// close counts n more closings, and returns how many of them are of flows that are
// or were in the table.
func (s *server) close(n uint64) int {
	c := &s.closing
	// Beyond that they are of flows that are not in the table.
	n = min(n, uint64(c.open-c.ahead))
	c.during += int(n)
	for range n {
		if c.ahead++; c.ahead > 0 {
			s.service.table.Count(s.sched, sched.Active, sched.Inactive)
		}
	}
	return int(n)
}

// reopened notes that a flow's conntrack entry carries another connection of the
// same ports, whose predecessor had closed.
func (e *Engine) reopened(f *flowtable.Flow, s *server) {
	e.countConnection(s.service, s)
	switch {
	case f.State == sched.Inactive:
		e.move(f, s, sched.Active, false)
	case f.Open:
		if s.closing.ahead > 0 {
			s.service.table.Count(s.sched, s.from(sched.Inactive), sched.Active)
		}
		s.closing.ahead--
	}
	s.bound()
}

// beginDump notes that a dump begins, and returns what endDump must know.
func (e *Engine) beginDump() (errors uint64) {
	e.readClosed()
	e.doubts = 0
	for _, s := range e.model.servers {
		if s != nil {
			s.closing.during, s.ends.lately = 0, 0
		}
	}
	return e.closedErrors
}

// endDump makes good what the counters missed or counted twice, and what time did
// not tell right: after a complete dump, only what happened while it ran may be
// unknown. errors is beginDump's.
func (e *Engine) endDump(errors uint64) {
	e.readClosed()
	for _, s := range e.model.servers {
		if s == nil {
			continue
		}
		if e.closedErrors == errors { // else some closings of that time are not known
			c := &s.closing
			c.ahead = max(c.ahead, 0)
			for ; c.ahead > c.during; c.ahead-- {
				s.service.table.Count(s.sched, s.from(sched.Inactive), sched.Active)
			}
		}
		s.dumped()
	}
}

// counterWarnings say what is wrong with the rules' counters; nil for nothing.
func (e *Engine) counterWarnings() (list []string) {
	if e.closedError != nil {
		list = append(list, fmt.Sprintf("the rules' counters cannot be read, connections that close are counted with a delay: %v", e.closedError))
	}
	if e.trafficError != nil {
		list = append(list, fmt.Sprintf("the rules' counters cannot be read, packets and bytes are not counted: %v", e.trafficError))
	}
	return list
}
