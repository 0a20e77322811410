package main

import (
	"slices"

	"github.com/lbd-project/lbd/sched"
)

// measure is what a scan holds to be the load of a server: a fraction.
type measure uint8

const (
	byConnections  measure = iota // lc
	byWeight                      // wlc
	byDelay                       // sed
	byDelayAndIdle                // nq
)

// scans reports that there are scans to compare the scheduler with.
func scans(name string) bool { return slices.Contains([]string{"lc", "wlc", "sed", "nq"}, name) }

func loadOf(name string) measure {
	return measure(slices.Index([]string{"lc", "wlc", "sed", "nq"}, name))
}

// byList scans the list of a table, as the kernel does, and counts in the table.
type byList struct {
	byTable
	load measure
}

func (b *byList) pick() int {
	var least *sched.Server
	switch b.load {
	case byConnections:
		least = b.connections()
	case byWeight:
		least = b.weighted()
	default:
		least = b.delay()
	}
	b.Count(least, sched.Uncounted, sched.Active)
	return int(least.ID())
}

func overhead(s *sched.Server) uint64 { return 257*uint64(s.Active()) + uint64(s.Inactive()) }

func (b *byList) connections() *sched.Server {
	var least *sched.Server
	var low uint64
	for s := range b.Servers() {
		if s.Overloaded() || s.Config().Weight == 0 {
			continue
		}
		if n := overhead(s); least == nil || n < low {
			least, low = s, n
		}
	}
	return least
}

func (b *byList) weighted() *sched.Server {
	var least *sched.Server
	var low, weight uint64
	for s := range b.Servers() {
		w := uint64(s.Config().Weight)
		if s.Overloaded() || w == 0 {
			continue
		}
		if n := overhead(s); least == nil || n*weight < low*w {
			least, low, weight = s, n, w
		}
	}
	return least
}

func (b *byList) delay() *sched.Server {
	var least *sched.Server
	var low, weight uint64
	for s := range b.Servers() {
		w := uint64(s.Config().Weight)
		if s.Overloaded() || w == 0 {
			continue
		}
		n := uint64(s.Active()) + 1
		if b.load == byDelayAndIdle && n == 1 {
			return s
		}
		if least == nil || n*weight < low*w {
			least, low, weight = s, n, w
		}
	}
	return least
}

// byArray scans an array that has the load alone, and counts there.
type byArray struct {
	// fractions are in list order: the last server first.
	fractions []fraction
	load      measure
	each      uint64
}

type fraction struct{ n, w uint64 }

func newByArray(name string, servers []*sched.Server) *byArray {
	a := &byArray{fractions: make([]fraction, len(servers)), load: loadOf(name), each: 257}
	for i, s := range servers {
		f := fraction{w: uint64(s.Config().Weight)}
		switch a.load {
		case byConnections:
			f.w = 1
		case byDelay, byDelayAndIdle:
			f.n, a.each = 1, 1
		}
		a.fractions[len(servers)-1-i] = f
	}
	return a
}

func (a *byArray) pick() int {
	least := a.least()
	a.fractions[least].n += a.each
	return len(a.fractions) - 1 - least
}

func (a *byArray) least() int {
	least, low := 0, a.fractions[0]
	for i, f := range a.fractions {
		if a.load == byDelayAndIdle && f.n == 1 {
			return i
		}
		if f.n*low.w < low.n*f.w {
			least, low = i, f
		}
	}
	return least
}

func (a *byArray) end(server int) { a.fractions[len(a.fractions)-1-server].n -= a.each }
