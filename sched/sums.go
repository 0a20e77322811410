package sched

// sums is a tree of the weights of available servers in list order: every inner
// node holds the sum of its children. It finds the server at a point of the
// total weight in as many steps as the tree is high.
type sums struct {
	leaves
	t     *Table
	draws draws
	// nodes has the root at 1, the children of k at 2k and 2k+1, the leaves in
	// its second half.
	nodes []uint64
}

func newSums(t *Table) sums {
	u := sums{t: t, draws: newDraws(t.opt.Rand)}
	u.build()
	return u
}

func (u *sums) build() {
	u.fill(u.t)
	size := len(u.servers)
	if len(u.nodes) != 2*size {
		u.nodes = make([]uint64, 2*size)
	}
	clear(u.nodes[size:])
	for i, s := range u.servers {
		if s != nil && s.available() {
			u.nodes[size+i] = uint64(s.weight)
		}
	}
	for k := size - 1; k > 0; k-- {
		u.nodes[k] = u.nodes[2*k] + u.nodes[2*k+1]
	}
}

// total returns the weight of all that are available.
func (u *sums) total() uint64 { return u.nodes[1] }

// at returns the server that covers the point, which is below the total.
func (u *sums) at(point uint64) *Server {
	k := 1
	for k < len(u.servers) {
		k *= 2
		if left := u.nodes[k]; point >= left {
			point -= left
			k++
		}
	}
	return u.servers[k-len(u.servers)]
}

func (u *sums) set(leaf int, w uint64) {
	k := len(u.servers) + leaf
	// A difference below 0 wraps around, and back again in the sum.
	if d := w - u.nodes[k]; d != 0 {
		for ; k > 0; k >>= 1 {
			u.nodes[k] += d
		}
	}
}

func (u *sums) sync(s *Server) {
	w := uint64(0)
	if s.available() {
		w = uint64(s.weight)
	}
	u.set(s.slot, w)
}

func (u *sums) added(s *Server) {
	if u.insert(s) {
		u.sync(s)
	} else {
		u.build()
	}
}

func (u *sums) removed(s *Server) {
	u.remove(s)
	u.set(s.slot, 0)
}

func (u *sums) updated(s *Server) { u.sync(s) }
func (u *sums) counted(s *Server) { u.sync(s) }

// weightedRandom draws an available server by weight.
type weightedRandom struct{ sums }

func (w *weightedRandom) pick(p *Packet) *Server {
	s := w.peek(p)
	w.draws.next()
	return s
}

func (w *weightedRandom) peek(*Packet) *Server {
	if w.total() == 0 {
		return nil
	}
	return w.at(w.draws.below(0, w.total()))
}

// twos is net/netfilter/ipvs/ip_vs_twos.c: two draws by weight, which may be the
// same server, then the one with less overhead for the weight; the first drawn
// wins a tie. The kernel's products are of 32 bits and overflow for great
// weights; here they do not.
type twos struct{ sums }

func (w *twos) pick(p *Packet) *Server {
	s := w.peek(p)
	w.draws.next()
	return s
}

func (w *twos) peek(*Packet) *Server {
	if w.total() == 0 {
		return nil
	}
	a, b := w.draw(0), w.draw(1)
	if byWeightedOverhead.of(w.t, b).less(byWeightedOverhead.of(w.t, a)) {
		return b
	}
	return a
}

// draw finds the first server in list order at which the sum of the weights
// reaches the random number. The kernel draws from 0 to the total, both
// included, so that the first server's share is that of one weight more.
func (w *twos) draw(i int) *Server {
	point := w.draws.below(i, w.total()+1)
	return w.at(max(point, 1) - 1)
}
