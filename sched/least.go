package sched

import "math"

func leastFamily() []registration {
	least := func(m measure, kernel bool, name, summary string) registration {
		return registration{
			Info: Info{Name: name, Kernel: kernel, Summary: summary, ReadsWeight: m != byOverhead, Ties: true},
			make: func(t *Table) scheduler { return newTree(t, m) },
		}
	}
	one := func(m measure, name, summary string) registration {
		r := least(m, true, name, summary)
		r.Ties, r.noTies = false, "keeps to one server"
		return r
	}
	signal := func(m measure, name, summary string) registration {
		r := least(m, false, name, summary)
		r.Signals = true
		return r
	}
	time := signal(byTime, "least-time", "least response time, times the active connections and this one, for the weight")
	time.clock = true
	time.make = func(t *Table) scheduler { return newLeastTime(t) }
	return []registration{
		least(byOverhead, true, "lc", "least connections"),
		least(byWeightedOverhead, true, "wlc", "least connections for the weight"),
		least(byDelay, true, "sed", "shortest expected delay: active connections and this one, for the weight"),
		least(byIdle, true, "nq", "never queue: an idle server, else as sed"),
		one(byWeight, "fo", "fail over: the greatest weight"),
		one(byOverflow, "ovf", "overflow: the greatest weight not exceeded by active connections"),
		{
			Info: Info{
				Name: "wlc-fair", Summary: "as wlc, among equals smooth weighted round robin", ReadsWeight: true,
			},
			noTies: "breaks ties itself, by weighted round robin",
			make:   func(t *Table) scheduler { return &fair{tree: newTree(t, byWeightedOverhead)} },
		},
		signal(byRequests, "least-active", "least outstanding requests for the weight"),
		time,
	}
}

// load is a fraction; the server with the least gets the connection. A weight of
// 0 stands for a server that must not get one: its load exceeds every other.
type load struct {
	n uint64
	w uint32
}

// less compares by cross products, so that no weight divides. They fit: n is at
// most 257 * 2^32, which leaves room for weights to 2^22, and 16 million active
// connections leave room for a weight of 2^31-1.
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
	// byRequests: outstanding requests, among equals connections.
	byRequests
	// byTime: leasttime.go.
	byTime
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
	case byRequests:
		n = uint64(min(s.busy, math.MaxInt32))<<16 + min(s.connections(), math.MaxUint16)
		w = min(w, math.MaxUint16)
	case byTime:
		n, w = s.expectedTime(), min(w, 1)
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
