package sched

import "time"

// lblcr is net/netfilter/ipvs/ip_vs_lblcr.c: connections to a virtual address go
// to the least loaded server of a set, to which wlc adds another one when that
// is crowded as in lblc. A set that has not changed for the expiration time
// loses its most loaded server.
type lblcr struct{ *locality }

func (l *lblcr) pick(p *Packet) *Server {
	now := l.tick()
	dst := destination(p)
	e := l.find(dst)
	if e == nil {
		s := l.leastWeighted()
		if s != nil {
			l.add(dst, s, now)
		}
		return s
	}
	e.lastUse = now
	least := l.least(e)
	if e.size > 1 && now > e.modified+l.expiration() {
		if s := l.most(e); s != nil {
			l.erase(e, s, now)
		}
	}
	if least != nil && !l.crowded(least) {
		return least
	}
	s := l.leastWeighted()
	if s != nil {
		l.insert(e, s, now)
	}
	return s
}

func (l *lblcr) peek(p *Packet) *Server {
	l.tick()
	if e := l.find(destination(p)); e != nil {
		if s := l.least(e); s != nil && !l.crowded(s) {
			return s
		}
	}
	return l.leastWeighted()
}

// least returns the least loaded available server of a set, the newest member
// among equals (ip_vs_dest_set_min).
func (l *locality) least(e *localityEntry) *Server {
	var least *Server
	best := load{n: 1}
	for m := e.set; m != 0; m = l.members[m-1].next {
		s := l.members[m-1].server
		if d := byWeightedOverhead.of(l.t, s); s.table == l.t && d.less(best) {
			least, best = s, d
		}
	}
	return least
}

// most returns the most loaded server of a set with a weight above 0, the newest
// member among equals (ip_vs_dest_set_max). It may be one that was removed.
func (l *locality) most(e *localityEntry) *Server {
	var most *Server
	var worst load
	for m := e.set; m != 0; m = l.members[m-1].next {
		s := l.members[m-1].server
		if s.weight == 0 {
			continue
		}
		d := load{n: l.t.overhead(s), w: s.weight}
		if most == nil || worst.less(d) {
			most, worst = s, d
		}
	}
	return most
}

// expiration is how long an unused entry and an unchanged set last.
func (l *locality) expiration() time.Duration {
	if l.t.opt.Expiration > 0 {
		return l.t.opt.Expiration
	}
	return localityExpiration
}
