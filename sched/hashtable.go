package sched

func hashFamily() []registration {
	return []registration{
		{
			Info: Info{Name: "sh", Kernel: true, Summary: "hash of the client's address", ReadsWeight: true},
			make: func(t *Table) scheduler { return newHashed(t, &buckets{weighted: true}) },
		},
		{
			Info: Info{Name: "dh", Kernel: true, Summary: "hash of the virtual address"},
			make: func(t *Table) scheduler { return newHashed(t, &buckets{}) },
		},
		{
			Info: Info{Name: "mh", Kernel: true, Summary: "Maglev hash of the client's address", ReadsWeight: true},
			make: func(t *Table) scheduler { return newHashed(t, &maglev{}) },
		},
		{
			Info: Info{Name: "ring", Summary: "consistent hash of the client's address", ReadsWeight: true},
			make: func(t *Table) scheduler { return newHashed(t, &ring{}) },
		},
	}
}

// hashTable maps packets to servers. What it answers depends on the list, the
// weights, and whether servers are available, so the same packet has the same
// server while these stay.
type hashTable interface {
	// fill makes the table for the servers of a list.
	fill(list []*Server)
	// share is what fill reads of a server that an edit may change.
	share(s *Server) uint32
	// get returns the server of a packet, or nil: none, or one that is not
	// available.
	get(p *Packet, o *Options) *Server
}

// hashed schedules by a hashTable. It makes the table anew at the first pick
// after a change of the list or of weights, once for many changes; that pick
// allocates where the table grows, others do not.
type hashed struct {
	t     *Table
	table hashTable
	stale bool
	list  []*Server
}

func newHashed(t *Table, h hashTable) *hashed { return &hashed{t: t, table: h, stale: true} }

func (h *hashed) pick(p *Packet) *Server { return h.peek(p) }

// peek changes nothing that a pick could tell.
func (h *hashed) peek(p *Packet) *Server {
	if h.stale {
		clear(h.list)
		h.list = h.list[:0]
		for s := range h.t.Servers() {
			h.list = append(h.list, s)
			s.slot = int(h.table.share(s))
		}
		h.table.fill(h.list)
		h.stale = false
	}
	if p == nil || len(h.list) == 0 {
		return nil
	}
	return h.table.get(p, &h.t.opt)
}

func (h *hashed) added(*Server)   { h.stale = true }
func (h *hashed) removed(*Server) { h.stale = true }
func (h *hashed) counted(*Server) {}

// updated leaves the table as it is where the edit does not change it: with mh
// and ring a server that fails and recovers does not.
func (h *hashed) updated(s *Server) {
	if s.slot != int(h.table.share(s)) {
		h.stale = true
	}
}
