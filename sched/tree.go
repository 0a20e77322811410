package sched

import (
	"math/bits"
	"slices"
)

// tree is a tournament: every inner node holds the lesser load of its two
// children, the root the least of all. A choice reads the root; a change of a
// server plays its leaf's matches again up to where nothing changes, so it costs
// at most the logarithm of the number of servers. Leaves are in list order and
// the left one wins a tie, which is the choice of a scan that replaces its
// candidate only by a lesser one.
type tree struct {
	leaves
	t       *Table
	measure measure
	ties    Ties
	draws   draws
	// nodes has the root at 1, the children of k at 2k and 2k+1, the leaves in
	// its second half.
	nodes []node
	// equals counts the leaves of each subtree that have its winner's load; for
	// ties random only.
	equals []uint32
	// picks counts the choices, for ties round-robin.
	picks uint64
}

// node is the winner of a subtree.
type node struct {
	load
	leaf int32
}

func newTree(t *Table, m measure) *tree {
	r := &tree{t: t, measure: m, ties: t.opt.Ties}
	if r.ties == TiesRandom {
		r.draws = newDraws(t.opt.Rand)
	}
	r.build()
	return r
}

func (r *tree) build() {
	r.fill(r.t)
	size := len(r.servers)
	if len(r.nodes) != 2*size {
		r.nodes = make([]node, 2*size)
	}
	if r.ties == TiesRandom && len(r.equals) != 2*size {
		r.equals = slices.Repeat([]uint32{1}, 2*size)
	}
	for i, s := range r.servers {
		r.nodes[size+i] = r.enter(s, i)
	}
	for k := size - 1; k > 0; k-- {
		r.play(k)
	}
}

// enter returns the leaf of s, or of a hole.
func (r *tree) enter(s *Server, leaf int) node {
	l := load{n: 1}
	if s != nil {
		l = r.measure.of(r.t, s)
	}
	return node{load: l, leaf: int32(leaf)}
}

// update plays the matches of s again.
func (r *tree) update(s *Server) { r.replace(s, s.slot) }

// replace gives the leaf to s, or to nobody, and plays its matches again up to
// where the winner stays.
func (r *tree) replace(s *Server, leaf int) {
	k := len(r.servers) + leaf
	n := r.enter(s, leaf)
	if r.nodes[k] == n {
		return
	}
	if r.ties == TiesFirst {
		r.climb(k, n)
		return
	}
	r.nodes[k] = n
	for k >>= 1; k > 0; k >>= 1 {
		if !r.play(k) {
			return
		}
	}
}

// climb sets node k to n and plays its matches, the first of equals winning.
func (r *tree) climb(k int, n node) {
	nodes := r.nodes
	nodes[k] = n
	for k > 1 {
		other := &nodes[k^1]
		x, y := n.n*uint64(other.w), other.n*uint64(n.w)
		// The other wins if it has less, or as much and is the left one. There
		// is no branch: which of two has less load is hard to foresee.
		i := k
		if y < x+uint64(k&1) {
			i ^= 1
		}
		n = nodes[i]
		k >>= 1
		if nodes[k] == n {
			return
		}
		nodes[k] = n
	}
}

// replay plays all matches of s again, also where its load is what it was.
func (r *tree) replay(s *Server) {
	for k := (len(r.servers) + s.slot) >> 1; k > 0; k >>= 1 {
		r.play(k)
	}
}

// play sets node k to the winner between its children, and reports whether that
// changed it.
func (r *tree) play(k int) bool {
	pair := r.nodes[2*k : 2*k+2 : 2*k+2]
	a, b := &pair[0], &pair[1]
	x, y := a.n*uint64(b.w), b.n*uint64(a.w)
	if r.ties != TiesFirst {
		return r.playTies(k, x, y)
	}
	// No branch: which of two servers has less load is hard to foresee.
	i := 0
	if y < x {
		i = 1
	}
	n := pair[i&1]
	old := r.nodes[k]
	r.nodes[k] = n
	return old != n
}

// playTies is play where the first of equals does not simply win.
func (r *tree) playTies(k int, x, y uint64) bool {
	old := r.nodes[k]
	n := r.nodes[2*k]
	if y < x || x == y && r.ties == TiesRoundRobin && r.staler(2*k+1, 2*k) {
		n = r.nodes[2*k+1]
	}
	r.nodes[k] = n
	if r.ties != TiesRandom {
		return old != n
	}
	equals := uint32(0)
	if x <= y {
		equals += r.equals[2*k]
	}
	if y <= x {
		equals += r.equals[2*k+1]
	}
	same := r.equals[k] == equals
	r.equals[k] = equals
	return old != n || !same
}

// staler reports that the winner of node k was chosen less recently than that of
// node j. Who cannot be chosen is not.
func (r *tree) staler(k, j int) bool {
	a, b := &r.nodes[k], &r.nodes[j]
	return a.w != 0 && r.servers[a.leaf].picked < r.servers[b.leaf].picked
}

func (r *tree) pick(p *Packet) *Server {
	s := r.peek(p)
	switch {
	case s == nil:
	case r.ties == TiesRoundRobin:
		r.picks++
		s.picked = r.picks
		r.replay(s)
	case r.ties == TiesRandom && r.equals[1] > 1:
		r.draws.next()
	}
	return s
}

func (r *tree) peek(*Packet) *Server {
	top := &r.nodes[1]
	switch {
	case top.w == 0:
		return nil
	case r.ties == TiesRandom && r.equals[1] > 1:
		return r.servers[r.nth(r.draws.below(0, uint64(r.equals[1])))]
	}
	return r.servers[top.leaf]
}

// nth returns the leaf of the i-th of those with the least load.
func (r *tree) nth(i uint64) int {
	k, least := 1, r.nodes[1].load
	for k < len(r.servers) {
		k *= 2
		if least.less(r.nodes[k].load) {
			k++
		} else if n := uint64(r.equals[k]); i >= n {
			i -= n
			k++
		}
	}
	return k - len(r.servers)
}

func (r *tree) added(s *Server) {
	if r.insert(s) {
		r.update(s)
	} else {
		r.build()
	}
}

func (r *tree) removed(s *Server) {
	r.remove(s)
	r.replace(nil, s.slot)
}

func (r *tree) updated(s *Server) { r.update(s) }
func (r *tree) counted(s *Server) { r.update(s) }

// draws holds random numbers drawn ahead, so that peek sees what pick will use.
type draws struct {
	src interface{ Uint64() uint64 }
	n   [2]uint64
}

func newDraws(src interface{ Uint64() uint64 }) draws {
	d := draws{src: src}
	d.next()
	return d
}

func (d *draws) next() { d.n[0], d.n[1] = d.src.Uint64(), d.src.Uint64() }

// below returns the number i as one in [0, n). The bias is at most n / 2^64.
func (d *draws) below(i int, n uint64) uint64 {
	hi, _ := bits.Mul64(d.n[i], n)
	return hi
}

// loadOf implements comparer.
func (r *tree) loadOf(s *Server) load { return r.measure.of(r.t, s) }
