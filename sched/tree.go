package sched

import "math/bits"

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
	// picks counts the choices, for ties round-robin.
	picks uint64
}

// node is the winner of a subtree.
type node struct {
	load
	leaf int32
	// ties is how many leaves of the subtree have this load; kept for ties
	// random only.
	ties uint32
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
	for i, s := range r.servers {
		r.nodes[size+i] = r.enter(s, i)
	}
	for k := size - 1; k > 0; k-- {
		r.nodes[k] = r.play(k)
	}
}

// enter returns the leaf of s, or of a hole.
func (r *tree) enter(s *Server, leaf int) node {
	l := load{n: 1}
	if s != nil {
		l = r.measure.of(r.t, s)
	}
	return node{load: l, leaf: int32(leaf), ties: 1}
}

// play returns the winner between the children of k.
func (r *tree) play(k int) node {
	pair := r.nodes[2*k : 2*k+2]
	a, b := &pair[0], &pair[1]
	x, y := a.n*uint64(b.w), b.n*uint64(a.w)
	if x == y && r.ties != TiesFirst {
		return r.tie(a, b)
	}
	i := 0
	if y < x {
		i = 1
	}
	return pair[i&1]
}

// tie returns the winner between equals where it is not simply the first.
func (r *tree) tie(a, b *node) node {
	switch {
	case a.w == 0:
	case r.ties == TiesRandom:
		n := *a
		n.ties += b.ties
		return n
	case r.servers[b.leaf].picked < r.servers[a.leaf].picked:
		return *b
	}
	return *a
}

// update plays the matches of s again.
func (r *tree) update(s *Server) { r.replace(s, s.slot) }

func (r *tree) replace(s *Server, leaf int) {
	k := len(r.servers) + leaf
	n := r.enter(s, leaf)
	if r.nodes[k] == n {
		return
	}
	r.nodes[k] = n
	for k >>= 1; k > 0; k >>= 1 {
		n := r.play(k)
		if r.nodes[k] == n {
			return
		}
		r.nodes[k] = n
	}
}

// replay plays all matches of s again, also where its load is what it was.
func (r *tree) replay(s *Server) {
	for k := (len(r.servers) + s.slot) >> 1; k > 0; k >>= 1 {
		r.nodes[k] = r.play(k)
	}
}

func (r *tree) pick(p *Packet) *Server {
	s := r.peek(p)
	switch {
	case s == nil:
	case r.ties == TiesRoundRobin:
		r.picks++
		s.picked = r.picks
		r.replay(s)
	case r.ties == TiesRandom && r.nodes[1].ties > 1:
		r.draws.next()
	}
	return s
}

func (r *tree) peek(*Packet) *Server {
	top := &r.nodes[1]
	switch {
	case top.w == 0:
		return nil
	case r.ties == TiesRandom && top.ties > 1:
		return r.servers[r.nth(r.draws.below(0, uint64(top.ties)))]
	}
	return r.servers[top.leaf]
}

// nth returns the leaf of the i-th of those with the least load.
func (r *tree) nth(i uint64) int {
	k, least := 1, r.nodes[1].load
	for k < len(r.servers) {
		k *= 2
		left := &r.nodes[k]
		if least.less(left.load) {
			k++
		} else if n := uint64(left.ties); i >= n {
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
