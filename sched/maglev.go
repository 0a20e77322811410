package sched

import "math/bits"

// maglevSize is the table size of mh: the kernel's default
// (CONFIG_IP_VS_MH_TAB_INDEX=12), which distributions keep.
const maglevSize = 4093

// maglevBits are the bits of a turn: six, so that the heaviest server takes at
// most 63 slots a turn.
const maglevBits = 6

// The keys of mh: one for the first slot and clients, one for the step.
const (
	maglevOffset sipKey = 2654435761
	maglevSkip   sipKey = 2654446892
)

// maglev is the lookup table of mh (ip_vs_mh.c; Eisenbud and others, "Maglev",
// NSDI 2016, section 3.4). A server that failed (weight 0) keeps its slots: its
// share is that of the last weight above 0.
type maglev struct {
	slots []*Server
	turns []maglevTurn
	taken [(maglevSize + 63) / 64]uint64
}

// maglevTurn is one server's walk over the table.
type maglevTurn struct {
	next, skip uint32
	slots      uint32 // taken in one turn
}

// fill gives the slots to the servers of the list, in turns. Of more servers
// than slots the first ones get a slot; the kernel then keeps the table it had.
func (m *maglev) fill(list []*Server) {
	if m.slots == nil {
		m.slots = make([]*Server, maglevSize)
	}
	clear(m.slots)
	clear(m.taken[:])
	m.turns = maglevTurns(m.turns[:0], list)
	if len(m.turns) == 0 {
		return
	}
	free := maglevSize
	for {
		for i := range m.turns {
			for range m.turns[i].slots {
				m.slots[m.take(&m.turns[i])] = list[i]
				if free--; free == 0 {
					return
				}
			}
		}
	}
}

// take returns the next free slot of the walk and takes it.
func (m *maglev) take(t *maglevTurn) uint32 {
	for m.taken[t.next/64]>>(t.next%64)&1 != 0 {
		if t.next += t.skip; t.next >= maglevSize {
			t.next -= maglevSize
		}
	}
	m.taken[t.next/64] |= 1 << (t.next % 64)
	return t.next
}

// maglevTurns appends a turn for each server, or none if all weights are 0.
func maglevTurns(turns []maglevTurn, list []*Server) []maglevTurn {
	var unit, most int64
	for _, s := range list {
		unit = gcd(int64(s.lastWeight), unit)
		most = max(most, int64(s.lastWeight))
	}
	if unit == 0 {
		return turns
	}
	shift := max(bits.Len64(uint64(most/unit))-maglevBits, 0)
	for _, s := range list {
		v := uint32(s.addr.Port()) + fold(s.addr.Addr())
		t := maglevTurn{
			next:  maglevOffset.sum32(v) % maglevSize,
			skip:  maglevSkip.sum32(v)%(maglevSize-1) + 1,
			slots: s.lastWeight / uint32(unit) >> shift,
		}
		if t.slots == 0 && s.lastWeight != 0 {
			t.slots = 1
		}
		turns = append(turns, t)
	}
	return turns
}

func (m *maglev) share(s *Server) uint32 { return s.lastWeight }

// get returns the server of the client's slot. With the fallback of mh the
// search goes on where that server is not available: the numbers after the
// client's slot are added to the key, one after the other.
func (m *maglev) get(p *Packet, o *Options) *Server {
	key := clientKey(p, o.Port)
	first := maglevOffset.sum32(key) % maglevSize
	s := onlyAvailable(m.slots[first])
	if s != nil || !o.Fallback || m.slots[first] == nil {
		return s
	}
	for i := range uint32(maglevSize) {
		slot := maglevOffset.sum32(key+(first+i)%maglevSize) % maglevSize
		if s := m.slots[slot]; s.available() {
			return s
		}
	}
	return nil
}
