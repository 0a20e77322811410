package flowtable

import (
	"unsafe"

	"github.com/lbd-project/lbd/internal/flow"
)

const (
	// Shards is the number of parts that a table is divided into, each of which
	// grows by itself.
	Shards = 256
	// minSlots is the size of the index of a part that has any flow.
	minSlots = 16
	// chunkFlows is how many flows are allocated at once: 2 KiB.
	chunkFlows = 2048 / int(unsafe.Sizeof(Flow{}))
)

// Table is a table of flows by their tuples. Make one with New.
type Table struct {
	seed   uint64
	len    int
	shards [Shards]shard
}

// shard is a part of a table. Its flows lie side by side in chunks, so that they
// never move to grow, and what they take is what there are of them. The index
// finds them: a hash table with linear probing. Deleting shifts back what
// follows in it, so there are no tombstones.
type shard struct {
	// index has a length that is a power of two, or 0.
	index  []slot
	chunks []*[chunkFlows]Flow
	len    int
}

// slot is half a hash above the place of a flow and 1; zero is empty.
type slot uint64

func newSlot(h uint64, place int) slot { return slot(h<<32 | uint64(uint32(place+1))) }

func (s slot) hash() uint64 { return uint64(s >> 32) }
func (s slot) place() int   { return int(uint32(s)) - 1 }

// New returns an empty table. The seed must be secret: who knows it can choose
// tuples that all collide.
func New(seed uint64) *Table { return &Table{seed: seed} }

// Len returns the number of flows.
func (t *Table) Len() int { return t.len }

// Hash returns the hash that the table finds a flow by.
func (t *Table) Hash(k *flow.Tuple) uint64 { return k.Hash(t.seed) }

// Get returns the flow of a tuple, or nil. It stays valid until the next Insert,
// Delete or Sweep.
func (t *Table) Get(k *flow.Tuple) *Flow {
	h := k.Hash(t.seed)
	s := t.shard(h)
	if i, ok := s.find(h, k); ok {
		return s.flow(s.index[i].place())
	}
	return nil
}

// Insert returns the flow of a tuple, which it makes if there is none; made is
// true then, and everything but the tuple is zero. The flow stays valid until
// the next Insert, Delete or Sweep. A tuple without protocol panics.
func (t *Table) Insert(k *flow.Tuple) (f *Flow, made bool) {
	if k.Protocol == 0 {
		panic("flowtable: tuple without protocol")
	}
	h := k.Hash(t.seed)
	s := t.shard(h)
	if i, ok := s.find(h, k); ok {
		return s.flow(s.index[i].place()), false
	}
	if (s.len+1)*4 > len(s.index)*3 {
		s.resize(max(minSlots, 2*len(s.index)))
	}
	if s.len == len(s.chunks)*chunkFlows {
		s.chunks = append(s.chunks, new([chunkFlows]Flow))
	}
	s.put(newSlot(h, s.len))
	f = s.flow(s.len)
	*f = Flow{tuple: *k}
	s.len++
	t.len++
	return f, true
}

// Delete removes the flow of a tuple and reports whether there was one.
func (t *Table) Delete(k *flow.Tuple) bool {
	h := k.Hash(t.seed)
	s := t.shard(h)
	i, ok := s.find(h, k)
	if ok {
		s.delete(i, t.seed)
		t.len--
	}
	return ok
}

// Sweep calls drop for every flow of one part, 0 to Shards-1, and removes those
// for which it returns true. drop must not change the table. An index that has
// become much too large shrinks, and a part without flows takes no memory.
func (t *Table) Sweep(part int, drop func(*Flow) bool) {
	s := &t.shards[part]
	// Backwards, since the last flow takes the place of one that goes.
	for p := s.len - 1; p >= 0; p-- {
		if f := s.flow(p); drop(f) {
			h := f.tuple.Hash(t.seed)
			s.delete(s.slotOf(h, p), t.seed)
			t.len--
		}
	}
	if s.len == 0 {
		s.index, s.chunks = nil, nil
	} else if n := len(s.index); n > minSlots && s.len*8 < n {
		s.resize(n / 2)
	}
}

// Slots returns how many flows the table has memory for.
func (t *Table) Slots() int {
	n := 0
	for i := range t.shards {
		n += len(t.shards[i].chunks) * chunkFlows
	}
	return n
}

// shard takes the highest bits of a hash: the index goes by the lowest.
func (t *Table) shard(h uint64) *shard { return &t.shards[h>>56] }

func (s *shard) mask() uint64 { return uint64(len(s.index) - 1) }

func (s *shard) flow(place int) *Flow { return &s.chunks[place/chunkFlows][place%chunkFlows] }

// find returns where in the index a flow is.
func (s *shard) find(h uint64, k *flow.Tuple) (i uint64, ok bool) {
	if s.len == 0 {
		return 0, false
	}
	for i := h & s.mask(); ; i = (i + 1) & s.mask() {
		switch e := s.index[i]; {
		case e == 0:
			return 0, false
		case e.hash() == h&0xffffffff && s.flow(e.place()).tuple == *k:
			return i, true
		}
	}
}

// slotOf returns where in the index the flow of a place is.
func (s *shard) slotOf(h uint64, place int) uint64 {
	i, want := h&s.mask(), newSlot(h, place)
	for s.index[i] != want {
		i = (i + 1) & s.mask()
	}
	return i
}

// put adds to the index, which has room.
func (s *shard) put(e slot) {
	i := e.hash() & s.mask()
	for s.index[i] != 0 {
		i = (i + 1) & s.mask()
	}
	s.index[i] = e
}

// delete removes the flow of slot i. The last flow takes its place, and the
// last chunk goes if the one before it is empty, too.
func (s *shard) delete(i, seed uint64) {
	place := s.index[i].place()
	s.empty(i)
	s.len--
	last := s.flow(s.len)
	if place != s.len {
		h := last.tuple.Hash(seed)
		s.index[s.slotOf(h, s.len)] = newSlot(h, place)
		*s.flow(place) = *last
	}
	if n := len(s.chunks); (n-2)*chunkFlows >= s.len {
		s.chunks[n-1] = nil
		s.chunks = s.chunks[:n-1]
	}
}

// empty empties slot i, and moves back each slot behind it that a look-up would
// no longer reach.
func (s *shard) empty(i uint64) {
	hole := i
	for j := (i + 1) & s.mask(); s.index[j] != 0; j = (j + 1) & s.mask() {
		home := s.index[j].hash() & s.mask()
		// It may move unless its home is behind the hole.
		if (j-home)&s.mask() >= (j-hole)&s.mask() {
			s.index[hole] = s.index[j]
			hole = j
		}
	}
	s.index[hole] = 0
}

func (s *shard) resize(n int) {
	old := s.index
	s.index = make([]slot, n)
	for _, e := range old {
		if e != 0 {
			s.put(e)
		}
	}
}
