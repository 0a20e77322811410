package sched

import (
	"net/netip"
	"time"
)

func localityFamily() []registration {
	return []registration{
		{
			Info:  Info{Name: "lblc", Kernel: true, Summary: "one server a virtual address, while it is not overloaded; else as wlc", ReadsWeight: true},
			clock: true,
			make:  func(t *Table) scheduler { return &lblc{newLocality(t)} },
		},
		{
			Info:  Info{Name: "lblcr", Kernel: true, Summary: "a set of servers a virtual address, which grows with the load; else as wlc", ReadsWeight: true},
			clock: true,
			make:  func(t *Table) scheduler { return &lblcr{newLocality(t)} },
		},
	}
}

// lblc is net/netfilter/ipvs/ip_vs_lblc.c: connections to a virtual address go
// where the last one went, until that server has more active connections than
// its weight while another has less than half of its own; then wlc chooses
// afresh. It makes sense for fwmark services that cover many addresses, such as
// a cluster of caches.
//
// As in the kernel the upper threshold is not looked at for the server that is
// remembered.
type lblc struct{ *locality }

func (l *lblc) pick(p *Packet) *Server { return l.choose(p, true) }
func (l *lblc) peek(p *Packet) *Server { return l.choose(p, false) }

// choose remembers the choice where keep is set.
func (l *lblc) choose(p *Packet, keep bool) *Server {
	now := l.tick()
	dst := destination(p)
	e := l.find(dst)
	if e != nil {
		if keep {
			e.lastUse = now
		}
		s := l.members[e.set-1].server
		if s.table == l.t && s.weight > 0 && !l.crowded(s) {
			return s
		}
	}
	s := l.leastWeighted()
	switch {
	case s == nil || !keep:
	case e == nil:
		l.add(dst, s, now)
	default:
		l.members[e.set-1].server = s
		e.lastUse = now
	}
	return s
}

// destination is the address that a packet was sent to.
func destination(p *Packet) netip.Addr {
	if p == nil {
		return netip.Addr{}
	}
	return p.Dst
}

// crowded reports that s has more active connections than its weight says, and
// that another server has less than half of what its own says (is_overloaded).
func (l *locality) crowded(s *Server) bool {
	if s.active <= s.weight {
		return false
	}
	for d := range l.t.Servers() {
		if uint64(d.active)*2 < uint64(d.weight) {
			return true
		}
	}
	return false
}

// leastWeighted chooses as wlc does, the first in the list among equals.
func (l *locality) leastWeighted() *Server {
	var least *Server
	best := load{n: 1}
	for s := range l.t.Servers() {
		if d := byWeightedOverhead.of(l.t, s); d.less(best) {
			least, best = s, d
		}
	}
	return least
}

// tick does the checks that are due: the kernel's timer does one a minute. It
// returns the time.
func (l *locality) tick() time.Duration {
	now := l.t.opt.Now()
	for ; l.due <= now; l.due += localityInterval {
		l.check(l.due)
	}
	return now
}
