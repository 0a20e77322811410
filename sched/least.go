package sched

func leastFamily() []registration {
	least := func(name, summary string, weight bool, m measure) registration {
		return registration{
			Info: Info{Name: name, Kernel: true, Summary: summary, ReadsWeight: weight},
			make: func(t *Table) scheduler { return &scan{t: t, measure: m} },
		}
	}
	return []registration{
		least("lc", "least connections", false, byOverhead),
		least("wlc", "least connections for the weight", true, byWeightedOverhead),
		least("sed", "shortest expected delay: active connections and this one for the weight", true, byDelay),
		least("nq", "never queue: an idle server, else as sed", true, byIdle),
		least("fo", "fail over: the greatest weight", true, byWeight),
		least("ovf", "overflow: the greatest weight that is not exceeded by active connections", true, byOverflow),
	}
}

// load is a fraction; the server with the least gets the connection. A weight of
// 0 stands for a server that must not get one: its load exceeds every other.
type load struct {
	n uint64
	w uint32
}

// less compares by cross products, so that no weight divides. They fit: n is at
// most 257 * 2^32 for weights up to 65,535, and a weight of 2^31-1 leaves room
// for 16 million active connections.
func (a load) less(b load) bool { return a.n*uint64(b.w) < b.n*uint64(a.w) }

// measure is what a scheduler holds to be the load of a server.
type measure uint8

const (
	// byOverhead: ip_vs_lc.c, ip_vs_dest_conn_overhead.
	byOverhead measure = iota
	// byWeightedOverhead: ip_vs_wlc.c.
	byWeightedOverhead
	// byDelay: ip_vs_sed.c, ip_vs_sed_dest_overhead.
	byDelay
	// byIdle: ip_vs_nq.c. A server without active connections is taken before
	// any other, whatever the weights.
	byIdle
	// byWeight: ip_vs_fo.c.
	byWeight
	// byOverflow: ip_vs_ovf.c.
	byOverflow
)

// of returns the load of s.
func (m measure) of(t *Table, s *Server) load {
	w := s.weight
	if s.overloaded {
		w = 0
	}
	n := uint64(1)
	switch m {
	case byOverhead:
		n, w = t.overhead(s), min(w, 1)
	case byWeightedOverhead:
		n = t.overhead(s)
	case byDelay:
		n = uint64(s.active) + 1
	case byIdle:
		if s.active > 0 {
			n = uint64(s.active) + 1
		} else {
			n = 0
		}
	case byOverflow:
		if s.active > w {
			w = 0
		}
	}
	if w == 0 {
		return load{n: 1}
	}
	return load{n: n, w: w}
}

// overhead is ip_vs_dest_conn_overhead (include/net/ip_vs.h): an active
// connection weighs as much as 256 inactive ones, or 257 since "ipvs: add
// totalconns for dest".
func (t *Table) overhead(s *Server) uint64 {
	n := uint64(s.active)<<8 + uint64(s.inactive)
	if t.opt.Overhead == OverheadTotal {
		n += uint64(s.active)
	}
	return n
}

// scan looks at every server; among equals the first in the list wins.
type scan struct {
	unhooked
	t       *Table
	measure measure
}

func (c *scan) pick(p *Packet) *Server { return c.peek(p) }

func (c *scan) peek(*Packet) *Server {
	var least *Server
	best := load{n: 1}
	for s := range c.t.Servers() {
		if l := c.measure.of(c.t, s); l.less(best) {
			least, best = s, l
		}
	}
	return least
}
