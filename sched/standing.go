package sched

import (
	"net/netip"
	"time"
)

// Standing is a server of a table at one moment, with what the scheduler compares
// of it.
type Standing struct {
	Address netip.AddrPort
	Config  Config
	// Active, Inactive and Persistent are its connections and templates, Busy its
	// outstanding requests, Latency its average response time.
	Active, Inactive, Persistent, Busy uint32
	Latency                            time.Duration
	// Overloaded keeps new connections away, and so does a weight of 0.
	Overloaded bool
	// Compared says that the scheduler compares Load over Weight: the least gets
	// the next connection. A Weight of 0 is for a server that gets none.
	Compared bool
	Load     uint64
	Weight   uint32
}

// comparer is a scheduler that compares loads.
type comparer interface{ loadOf(s *Server) load }

// Standings returns the servers in list order, as they stand now.
func (t *Table) Standings() []Standing {
	list := make([]Standing, 0, t.len)
	c, compares := t.sched.(comparer)
	for s := range t.Servers() {
		st := Standing{
			Address: s.addr, Config: s.config,
			Active: s.active, Inactive: s.inactive, Persistent: s.persistent, Busy: s.busy,
			Latency: s.Latency(), Overloaded: s.overloaded, Compared: compares,
		}
		if compares {
			l := c.loadOf(s)
			st.Load, st.Weight = l.n, l.w
		}
		list = append(list, st)
	}
	return list
}

// Next returns the server that the next connection would get, nil for none, and
// whether that is certain: it is not where the packet decides or chance does.
func (t *Table) Next() (s *Server, certain bool) {
	r, _ := lookup(t.name)
	switch t.name {
	case "sh", "dh", "mh", "ring", "lblc", "lblcr":
		return nil, false
	}
	if r.random || t.opt.Ties == TiesRandom {
		return nil, false
	}
	return t.Peek(nil), true
}
