package sched

func roundRobinFamily() []registration {
	return []registration{
		{
			Info: Info{Name: "rr", Kernel: true, Summary: "round robin"},
			make: func(t *Table) scheduler { return &roundRobin{root: &t.root, at: &t.root} },
		},
		{
			Info: Info{Name: "wrr", Kernel: true, Summary: "weighted round robin, interleaved by weight", ReadsWeight: true},
			make: func(t *Table) scheduler {
				w := &weightedRoundRobin{t: t}
				w.weigh()
				w.cw = w.mw
				return w
			},
		},
		{
			Info: Info{Name: "swrr", Summary: "smooth weighted round robin", ReadsWeight: true},
			make: func(t *Table) scheduler { return newSmooth(t) },
		},
	}
}

// roundRobin is net/netfilter/ipvs/ip_vs_rr.c: the next available server after
// the last one chosen.
type roundRobin struct {
	unhooked
	root *Server
	// at is the last server chosen, or root.
	at *Server
}

func (r *roundRobin) pick(*Packet) *Server {
	s := r.next()
	if s != nil {
		r.at = s
	}
	return s
}

func (r *roundRobin) peek(*Packet) *Server { return r.next() }

// next looks at every server after the cursor, then at those up to it.
func (r *roundRobin) next() *Server {
	for s := r.at.next; s != r.root; s = s.next {
		if s.available() {
			return s
		}
	}
	if r.at == r.root {
		return nil
	}
	for s := r.root.next; ; s = s.next {
		if s.available() {
			return s
		}
		if s == r.at {
			return nil
		}
	}
}

// removed moves the cursor to the server before s (ip_vs_rr_del_dest), so that
// the one after s is next.
func (r *roundRobin) removed(s *Server) {
	if r.at == s {
		r.at = s.next.prev
	}
}
