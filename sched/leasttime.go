package sched

import (
	"math"
	"time"
)

// unmeasured is the response time that a server is held to have while it has
// connections and none was observed: it is tried with one, then waited for.
const unmeasured = time.Second

// leastTime is a tree by expected response time: (active connections + 1) times
// the average response time, for the weight.
//
// The average of a server that is not used fades with time (latency). As all
// fade at the same rate, their order does not change by waiting, and the tree
// need not be touched: it compares the logarithm of the load plus the age that
// the observation has in units of fade.
type leastTime struct {
	*tree
}

func newLeastTime(t *Table) leastTime {
	for s := range t.Servers() {
		s.latency.begin(t.opt.Now())
	}
	return leastTime{newTree(t, byTime)}
}

func (l leastTime) added(s *Server) {
	s.latency.begin(l.t.opt.Now())
	l.tree.added(s)
}

// begin dates a server of which nothing was observed yet.
func (l *latency) begin(now time.Duration) {
	if l.cost == 0 {
		l.stamp = now
	}
}

// expectedTime returns a number that orders servers by expected response time.
// A server that is idle and was never measured comes first.
func (s *Server) expectedTime() uint64 {
	cost := s.latency.cost
	if cost == 0 {
		if s.active == 0 {
			return 0
		}
		cost = float64(unmeasured)
	}
	v := math.Log(cost*(float64(s.active)+1)/float64(max(s.weight, 1))) + float64(s.latency.stamp)/float64(fade)
	// The bits of floating point numbers are in their order once those of the
	// negative ones are inverted and the others are put above them.
	b := math.Float64bits(v)
	if b>>63 != 0 {
		return ^b
	}
	return b | 1<<63
}
