package sched

import (
	"cmp"
	"fmt"
	"iter"
	"time"
)

// Table is the real servers of one virtual service and the scheduler that
// chooses among them. It is not safe for concurrent use.
type Table struct {
	sched scheduler
	name  string
	opt   Options
	// root is the head of the list, linked to itself when the list is empty. It
	// is never available.
	root Server
	len  int
	// order is that of the head; it counts down.
	order int64
}

// New returns an empty table with the scheduler of that name. It fails with an
// error that matches ErrUnknown or ErrOption.
func New(name string, o Options) (*Table, error) {
	t := &Table{}
	t.root.next, t.root.prev = &t.root, &t.root
	if err := t.Reset(name, o); err != nil {
		return nil, err
	}
	return t, nil
}

// Reset gives the table another scheduler or other options, as an edit of the
// service does in the kernel: servers, their order and counts stay, cursors and
// caches start afresh. After an error, as New's, nothing has changed.
func (t *Table) Reset(name string, o Options) error {
	r, ok := lookup(name)
	switch {
	case !ok:
		return fmt.Errorf("%w %q", ErrUnknown, name)
	case int(o.Ties) >= len(tiesNames):
		return fmt.Errorf("%w: no tie rule %d", ErrOption, o.Ties)
	case o.Ties != TiesFirst && !r.Ties:
		return fmt.Errorf("%w: ties %v: scheduler %s %s", ErrOption, o.Ties, name,
			cmp.Or(r.noTies, "knows no ties"))
	case int(o.Overhead) >= len(overheadNames):
		return fmt.Errorf("%w: no overhead %d", ErrOption, o.Overhead)
	case o.Rand == nil && (r.random || o.Ties == TiesRandom):
		return fmt.Errorf("%w: scheduler %s needs random numbers", ErrOption, name)
	case o.Now == nil && r.clock:
		return fmt.Errorf("%w: scheduler %s needs a clock", ErrOption, name)
	}
	t.name, t.opt = name, o
	for s := range t.Servers() {
		t.reweigh(s, s.config)
		s.slot, s.current, s.picked, s.group = 0, 0, 0, nil
	}
	t.sched = r.make(t)
	return nil
}

// Scheduler returns the name and the options that the table has.
func (t *Table) Scheduler() (string, Options) { return t.name, t.opt }

// Len returns the number of servers in the table.
func (t *Table) Len() int { return t.len }

// Servers returns the servers in list order, the newest first. The table must
// not change meanwhile.
func (t *Table) Servers() iter.Seq[*Server] {
	return func(yield func(*Server) bool) {
		for s := t.root.next; s != &t.root; s = s.next {
			if !yield(s) {
				return
			}
		}
	}
}

// Insert adds s at the head of the list, as the kernel does (list_add_rcu in
// __ip_vs_update_dest), also where it was in the table before. What is counted
// of it stays. It does nothing where s is in the table already, and panics where
// it is in another one.
func (t *Table) Insert(s *Server) {
	switch s.table {
	case t:
		return
	case nil:
	default:
		panic("sched: server inserted into a second table")
	}
	s.table = t
	s.prev, s.next = &t.root, t.root.next
	s.prev.next, s.next.prev = s, s
	s.slot, s.current, s.picked, s.group = 0, 0, 0, nil
	t.order--
	s.order = t.order
	t.len++
	s.lastWeight = s.weight
	t.sched.added(s)
}

// Remove takes s out of the list; it gets no more connections. It can still be
// counted, and inserted again with its counts. It does nothing where s is not in
// the table.
func (t *Table) Remove(s *Server) {
	if s.table != t {
		return
	}
	s.prev.next, s.next.prev = s.next, s.prev
	s.table = nil
	t.len--
	t.sched.removed(s)
	s.prev, s.next = nil, nil
}

// Update gives s other settings. It may be out of the table.
func (t *Table) Update(s *Server, c Config) {
	t.reweigh(s, c)
	if s.weight != 0 {
		s.lastWeight = s.weight
	}
	if s.table == t {
		t.sched.updated(s)
	}
}

// Pick chooses a server for a new connection and counts the connection as st, in
// one step. It returns nil, and has counted nothing, where no server is
// available, or none for this packet.
func (t *Table) Pick(p *Packet, st State) *Server {
	s := t.sched.pick(p)
	if s != nil && st != Uncounted {
		t.Begin(s, st, 1)
	}
	return s
}

// Peek returns what Pick would return, and changes nothing.
func (t *Table) Peek(p *Packet) *Server { return t.sched.peek(p) }

// Available reports that s is in the table and may get new connections: its
// weight is not 0 and it is not overloaded.
func (t *Table) Available(s *Server) bool { return s.table == t && s.available() }

// Observe adds a response time of s to its average. It does nothing where the
// table has no clock.
func (t *Table) Observe(s *Server, d time.Duration) {
	if t.opt.Now == nil {
		return
	}
	s.latency.observe(d, t.opt.Now())
	t.changed(s)
}

// changed tells the scheduler of s that what it counts has changed.
func (t *Table) changed(s *Server) {
	if s.table == t {
		t.sched.counted(s)
	}
}
