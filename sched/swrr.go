package sched

import "slices"

// smooth is smooth weighted round robin (nginx, ngx_http_upstream_round_robin.c):
// in every turn each available server gains its weight, the richest is chosen,
// the first of several, and pays what all gained. In any as many turns as the
// weights sum up to, each server is chosen as often as its weight, spread out
// evenly.
//
// Servers of equal weight gain alike, so that only a payment changes their order
// among themselves. They share a heap, and a choice looks at the richest of each
// weight: it costs as much as there are different weights, and the logarithm of
// the servers that share one. What an available server has is Server.current
// plus its weight for each turn; current alone is what one has that is not
// available, and gains nothing.
type smooth struct {
	t      *Table
	groups []*group
	// turns is the number of choices. It and what is computed from it may wrap
	// around: only differences are compared, and those are small.
	turns int64
	// total is the weight of all available servers.
	total int64
}

// group is the available servers of one weight, a heap with the richest on top.
// Server.slot is the place in it.
type group struct {
	weight int64
	heap   []*Server
}

func newSmooth(t *Table) *smooth {
	m := &smooth{t: t}
	for s := range t.Servers() {
		m.sync(s)
	}
	return m
}

func (m *smooth) pick(p *Packet) *Server {
	s := m.peek(p)
	if s != nil {
		m.turns++
		s.current -= m.total
		s.group.down(0)
	}
	return s
}

func (m *smooth) peek(*Packet) *Server {
	var best *Server
	most := int64(0)
	for _, g := range m.groups {
		if len(g.heap) == 0 {
			continue
		}
		s := g.heap[0]
		has := s.current + g.weight*(m.turns+1)
		if best == nil || has > most || has == most && s.before(best) {
			best, most = s, has
		}
	}
	return best
}

func (m *smooth) sync(s *Server) {
	in := m.t.Available(s)
	if s.group != nil && (!in || s.group.weight != int64(s.weight)) {
		s.group.remove(s)
		s.current += s.group.weight * m.turns
		m.total -= s.group.weight
		s.group = nil
	}
	if in && s.group == nil {
		s.group = m.group(int64(s.weight))
		s.current -= s.group.weight * m.turns
		m.total += s.group.weight
		s.group.add(s)
	}
}

func (m *smooth) group(weight int64) *group {
	for _, g := range m.groups {
		if g.weight == weight {
			return g
		}
	}
	g := &group{weight: weight}
	m.groups = append(m.groups, g)
	return g
}

func (m *smooth) added(s *Server)   { m.sync(s) }
func (m *smooth) removed(s *Server) { m.sync(s) }
func (m *smooth) counted(s *Server) { m.sync(s) }

// updated also forgets weights that nobody has any more. Overload, which comes
// and goes with connections, does not: making a group again would allocate.
func (m *smooth) updated(s *Server) {
	m.sync(s)
	m.groups = slices.DeleteFunc(m.groups, func(g *group) bool { return len(g.heap) == 0 })
}

// richer reports that a goes before b, both of one weight.
func richer(a, b *Server) bool {
	d := a.current - b.current
	return d > 0 || d == 0 && a.before(b)
}

func (g *group) add(s *Server) {
	g.heap = append(g.heap, s)
	g.up(len(g.heap) - 1)
}

func (g *group) remove(s *Server) {
	i, last := s.slot, len(g.heap)-1
	g.set(i, g.heap[last])
	g.heap[last] = nil
	g.heap = g.heap[:last]
	if i < last {
		g.down(i)
		g.up(i)
	}
}

func (g *group) set(i int, s *Server) { g.heap[i], s.slot = s, i }

func (g *group) up(i int) {
	s := g.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !richer(s, g.heap[parent]) {
			break
		}
		g.set(i, g.heap[parent])
		i = parent
	}
	g.set(i, s)
}

func (g *group) down(i int) {
	s := g.heap[i]
	for {
		child := 2*i + 1
		if child >= len(g.heap) {
			break
		}
		if r := child + 1; r < len(g.heap) && richer(g.heap[r], g.heap[child]) {
			child = r
		}
		if !richer(g.heap[child], s) {
			break
		}
		g.set(i, g.heap[child])
		i = child
	}
	g.set(i, s)
}
