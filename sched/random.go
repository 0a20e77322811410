package sched

func randomFamily() []registration {
	return []registration{
		{
			Info:   Info{Name: "twos", Kernel: true, Summary: "the less loaded of two drawn by weight", ReadsWeight: true},
			random: true,
			make:   func(t *Table) scheduler { return &twos{sums: newSums(t)} },
		},
		{
			Info:   Info{Name: "random", Summary: "any"},
			random: true,
			make:   func(t *Table) scheduler { return &random{pool: newPool(t)} },
		},
		{
			Info:   Info{Name: "wrandom", Summary: "any, by weight", ReadsWeight: true},
			random: true,
			make:   func(t *Table) scheduler { return &weightedRandom{sums: newSums(t)} },
		},
		{
			Info:   Info{Name: "p2c", Summary: "of any two the one with less connections for the weight", ReadsWeight: true, Ties: true},
			random: true,
			make:   func(t *Table) scheduler { return &twoChoices{pool: newPool(t)} },
		},
	}
}

// pool holds the available servers without order, to draw from. Server.slot is
// 1 more than its place there, 0 for none.
type pool struct {
	t     *Table
	draws draws
	in    []*Server
}

func newPool(t *Table) pool {
	l := pool{t: t, draws: newDraws(t.opt.Rand)}
	for s := range t.Servers() {
		l.sync(s)
	}
	return l
}

func (l *pool) sync(s *Server) {
	if in := s.slot != 0; in == l.t.Available(s) {
		return
	} else if in {
		last := l.in[len(l.in)-1]
		last.slot = s.slot
		l.in[s.slot-1] = last
		l.in = l.in[:len(l.in)-1]
		s.slot = 0
	} else {
		l.in = append(l.in, s)
		s.slot = len(l.in)
	}
}

func (l *pool) added(s *Server)   { l.sync(s) }
func (l *pool) removed(s *Server) { l.sync(s) }
func (l *pool) updated(s *Server) { l.sync(s) }
func (l *pool) counted(s *Server) { l.sync(s) }

// random draws an available server; all are alike.
type random struct{ pool }

func (r *random) pick(p *Packet) *Server {
	s := r.peek(p)
	r.draws.next()
	return s
}

func (r *random) peek(*Packet) *Server {
	if len(r.in) == 0 {
		return nil
	}
	return r.in[r.draws.below(0, uint64(len(r.in)))]
}

// twoChoices draws two different available servers, all alike, and takes the one
// with less load as wlc sees it. The first drawn wins a tie, or with ties
// round-robin the one chosen less recently.
type twoChoices struct {
	pool
	picks uint64
}

func (c *twoChoices) pick(p *Packet) *Server {
	s := c.peek(p)
	if s != nil {
		c.picks++
		s.picked = c.picks
		c.draws.next()
	}
	return s
}

func (c *twoChoices) peek(*Packet) *Server {
	n := uint64(len(c.in))
	switch n {
	case 0:
		return nil
	case 1:
		return c.in[0]
	}
	i, j := c.draws.below(0, n), c.draws.below(1, n-1)
	if j >= i {
		j++
	}
	a, b := c.in[i], c.in[j]
	la, lb := byWeightedOverhead.of(c.t, a), byWeightedOverhead.of(c.t, b)
	switch {
	case lb.less(la):
		return b
	case c.t.opt.Ties == TiesRoundRobin && !la.less(lb) && b.picked < a.picked:
		return b
	}
	return a
}
