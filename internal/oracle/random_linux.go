package oracle

import (
	"math/rand/v2"

	"github.com/lbd-project/lbd/sched"
)

// sequence is a random run.
type sequence struct {
	*pool
	rnd *rand.Rand
	// inARow counts refused picks since the last good one.
	inARow int
}

// run does random things until n picks had a server, with so many times at which
// connections expire.
func (s *sequence) run(n, expiries int) error {
	for range 8 {
		if err := s.add(s.anyListed(s.rnd, false), s.config()); err != nil {
			return err
		}
	}
	every := n / (expiries + 1)
	due := every
	for s.compared < n {
		if err := s.step(); err != nil {
			return err
		}
		if s.compared >= due {
			due += every
			// Most of one server's and some of the others'.
			one := s.rnd.IntN(maxServers)
			err := s.expire(func(c conn) bool { return s.rnd.IntN(4) != 0 == (c.server == one) || s.rnd.IntN(3) == 0 })
			if err != nil {
				return err
			}
		}
	}
	return s.check()
}

func (s *sequence) step() error {
	switch r := s.rnd.IntN(1000); {
	case s.inARow > 30:
		return s.relieve()
	case r < 30:
		return s.change(func(c *sched.Config) { c.Weight = s.weight() })
	case r < 40:
		return s.change(s.limit)
	case r < 44: // a health check fails
		return s.change(func(c *sched.Config) { c.Weight = 0 })
	case r < 52:
		if i := s.anyListed(s.rnd, true); i >= 0 && s.table.Len() > 1 {
			return s.remove(i)
		}
	case r < 60:
		if i := s.anyListed(s.rnd, false); i >= 0 && s.table.Len() < 12 {
			return s.add(i, s.config())
		}
	// Connections are opened until there are many, then as many end as begin.
	case r < 500 && s.rnd.IntN(150) < len(s.active):
		return s.finish(s.rnd.IntN(len(s.active)))
	}
	ok, err := s.open(s.client(s.rnd.IntN(1<<20), s.rnd.IntN(max(s.setup.addresses, 1))))
	if s.inARow++; ok {
		s.inARow = 0
	}
	return err
}

// change edits any server of the list.
func (s *sequence) change(edit func(*sched.Config)) error {
	i := s.anyListed(s.rnd, true)
	c := s.servers[i].Config()
	edit(&c)
	return s.pool.edit(i, c)
}

// relieve lifts limits, and gives weights, so that picks succeed again.
func (s *sequence) relieve() error {
	s.inARow = 0
	for i, listed := range s.listed {
		if !listed {
			continue
		}
		if err := s.pool.edit(i, sched.Config{Weight: 1 + uint32(s.rnd.IntN(5))}); err != nil {
			return err
		}
	}
	return nil
}

func (s *sequence) config() sched.Config {
	c := sched.Config{Weight: s.weight()}
	if s.rnd.IntN(4) == 0 {
		c.Upper = 1 + uint32(s.rnd.IntN(40))
	}
	return c
}

// weight is small, so that loads tie, or 0, or any.
func (s *sequence) weight() uint32 {
	switch r := s.rnd.IntN(20); {
	case r < 3:
		return 0
	case r < 5:
		return uint32(s.rnd.IntN(65536))
	case r < 6:
		return 1 + uint32(s.rnd.IntN(300))
	}
	return 1 + uint32(s.rnd.IntN(8))
}

// limit sets thresholds: none, some, or about what the server has.
func (s *sequence) limit(c *sched.Config) {
	c.Upper, c.Lower = 0, 0
	if s.rnd.IntN(3) == 0 {
		return
	}
	c.Upper = 1 + uint32(s.rnd.IntN(6))
	if s.rnd.IntN(2) == 0 {
		i := s.anyListed(s.rnd, true)
		c.Upper += s.servers[i].Active() + s.servers[i].Inactive()
	}
	if s.rnd.IntN(2) == 0 {
		c.Lower = uint32(s.rnd.IntN(int(c.Upper) + 1))
	}
}
