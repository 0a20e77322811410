package flowtable

import "github.com/lbd-project/lbd/internal/flow"

const (
	// Shards is the number of parts that a table is divided into, each of which
	// grows by itself.
	Shards = 256
	// minSlots is the size of a part that has any flow.
	minSlots = 16
)

// Table is a table of flows by their tuples. Make one with New.
type Table struct {
	seed   uint64
	len    int
	shards [Shards]shard
}

// shard is a hash table with linear probing. A slot whose tuple has protocol 0
// is empty; deleting shifts back what follows, so there are no tombstones.
type shard struct {
	// slots has a length that is a power of two, or 0.
	slots []Flow
	len   int
}

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
	return t.shard(h).get(h, k)
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
	if f := s.get(h, k); f != nil {
		return f, false
	}
	if (s.len+1)*4 > len(s.slots)*3 {
		s.resize(max(minSlots, 2*len(s.slots)), t.seed)
	}
	i := h & s.mask()
	for s.slots[i].tuple.Protocol != 0 {
		i = (i + 1) & s.mask()
	}
	s.slots[i] = Flow{tuple: *k}
	s.len++
	t.len++
	return &s.slots[i], true
}

// Delete removes the flow of a tuple and reports whether there was one.
func (t *Table) Delete(k *flow.Tuple) bool {
	h := k.Hash(t.seed)
	s := t.shard(h)
	f := s.get(h, k)
	if f == nil {
		return false
	}
	i := h & s.mask()
	for &s.slots[i] != f {
		i = (i + 1) & s.mask()
	}
	s.delete(i, t.seed)
	t.len--
	return true
}

// Sweep calls drop for every flow of one part, 0 to Shards-1, and removes those
// for which it returns true. A flow that stays may be asked about twice. drop
// must not change the table. A part that has become much too large shrinks.
func (t *Table) Sweep(part int, drop func(*Flow) bool) {
	s := &t.shards[part]
	for i := 0; i < len(s.slots); {
		if s.slots[i].tuple.Protocol != 0 && drop(&s.slots[i]) {
			// What comes here from behind is looked at next.
			s.delete(uint64(i), t.seed)
			t.len--
			continue
		}
		i++
	}
	if n := len(s.slots); n > minSlots && s.len*8 < n {
		s.resize(n/2, t.seed)
	}
}

// shard takes the highest bits of a hash: a part's slots go by the lowest.
func (t *Table) shard(h uint64) *shard { return &t.shards[h>>56] }

func (s *shard) mask() uint64 { return uint64(len(s.slots) - 1) }

func (s *shard) get(h uint64, k *flow.Tuple) *Flow {
	if s.len == 0 {
		return nil
	}
	for i := h & s.mask(); ; i = (i + 1) & s.mask() {
		f := &s.slots[i]
		switch {
		case f.tuple.Protocol == 0:
			return nil
		case f.tuple == *k:
			return f
		}
	}
}

// delete empties slot i and moves back each flow behind it that a look-up would
// no longer reach.
func (s *shard) delete(i, seed uint64) {
	hole := i
	for j := (i + 1) & s.mask(); s.slots[j].tuple.Protocol != 0; j = (j + 1) & s.mask() {
		home := s.slots[j].tuple.Hash(seed) & s.mask()
		// It may move unless its home is behind the hole.
		if (j-home)&s.mask() >= (j-hole)&s.mask() {
			s.slots[hole] = s.slots[j]
			hole = j
		}
	}
	s.slots[hole] = Flow{}
	s.len--
}

func (s *shard) resize(n int, seed uint64) {
	old := s.slots
	s.slots = make([]Flow, n)
	for i := range old {
		if old[i].tuple.Protocol == 0 {
			continue
		}
		j := old[i].tuple.Hash(seed) & s.mask()
		for s.slots[j].tuple.Protocol != 0 {
			j = (j + 1) & s.mask()
		}
		s.slots[j] = old[i]
	}
}

// Slots returns how many flows the table has memory for.
func (t *Table) Slots() int {
	n := 0
	for i := range t.shards {
		n += len(t.shards[i].slots)
	}
	return n
}
