package sched

// smooth is smooth weighted round robin (nginx, ngx_http_upstream_round_robin.c):
// in every turn each available server gains its weight, the richest is chosen
// and pays what all gained. In any as many turns as the weights sum up to, each
// server is chosen as often as its weight, spread out evenly.
type smooth struct {
	unhooked
	t *Table
}

func (m *smooth) pick(p *Packet) *Server {
	best := m.peek(p)
	if best == nil {
		return nil
	}
	for s := m.t.root.next; s != &m.t.root; s = s.next {
		if s.available() {
			s.current += int64(s.weight)
			best.current -= int64(s.weight)
		}
	}
	return best
}

func (m *smooth) peek(*Packet) *Server {
	var best *Server
	for s := m.t.root.next; s != &m.t.root; s = s.next {
		if s.available() && (best == nil || s.credit() > best.credit()) {
			best = s
		}
	}
	return best
}
