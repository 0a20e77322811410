package sched

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// clock is a time that a test moves.
type clock time.Duration

func (c *clock) now() time.Duration   { return time.Duration(*c) }
func (c *clock) pass(d time.Duration) { *c += clock(d) }

func TestPeakAverage(t *testing.T) {
	var c clock
	f := newFleet(t, "least-time", Options{Now: c.now}, weights(1)...)
	s := f.servers[0]
	if s.Latency() != 0 {
		t.Errorf("want no latency before the first observation, got %v", s.Latency())
	}
	for i, tt := range []struct {
		wait, observe, want time.Duration
	}{
		{0, 10 * time.Millisecond, 10 * time.Millisecond},
		// Slower: at once. Faster: the more, the longer ago the last one was.
		{time.Second, 100 * time.Millisecond, 100 * time.Millisecond},
		{0, 10 * time.Millisecond, 100 * time.Millisecond},
		{fade, 10 * time.Millisecond, 43109149 * time.Nanosecond}, // 10 + 90/e
		{100 * fade, 10 * time.Millisecond, 10 * time.Millisecond},
		// A clock that goes backwards fades nothing.
		{-time.Second, 5 * time.Millisecond, 10 * time.Millisecond},
		{0, 0, 10 * time.Millisecond},
	} {
		c.pass(tt.wait)
		f.Observe(s, tt.observe)
		if got := s.Latency(); (got - tt.want).Abs() > time.Microsecond {
			t.Errorf("step %d: want %v, got %v", i, tt.want, got)
		}
	}
}

// TestLeastTime chooses by (active + 1) x response time / weight.
func TestLeastTime(t *testing.T) {
	f := newFleet(t, "least-time", Options{}, weights(1, 1, 2)...)
	// Nothing is known of any: each is tried once, then waited for.
	if want, got := "ABC", f.picks(3, Active); want != got {
		t.Errorf("unmeasured: want %s, got %s", want, got)
	}
	for i, ms := range []time.Duration{10, 30, 40} {
		f.Observe(f.servers[i], ms*time.Millisecond)
		f.end(f.servers[i], 1)
	}
	// A: 10, 20, 30 …; B: 30, 60; C: 20, 40.
	if want, got := "AACABA", f.picks(6, Active); want != got {
		t.Errorf("want %s, got %s", want, got)
	}
}

// TestLeastTimeSmall has loads below a nanosecond, whose logarithms are negative.
func TestLeastTimeSmall(t *testing.T) {
	f := newFleet(t, "least-time", Options{}, weights(65535, 65535, 65535)...)
	for i, us := range []time.Duration{2, 1, 3} {
		f.Observe(f.servers[i], us*time.Microsecond)
	}
	if want, got := "BABBCA", f.picks(6, Active); want != got {
		t.Errorf("want %s, got %s", want, got)
	}
}

// TestLeastTimeAsScan compares with the definition: the load of each faded to
// now, the least of all.
func TestLeastTimeAsScan(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	var c clock
	f := newFleet(t, "least-time", Options{Now: c.now}, weights(1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 7, 0)...)
	began := map[*Server]time.Duration{}
	observed := map[*Server]bool{}
	load := func(s *Server) float64 {
		if s.Active() == 0 && !observed[s] {
			return 0
		}
		cost, since := float64(unmeasured), began[s]
		if observed[s] {
			cost, since = float64(s.Latency()), s.latency.stamp
		}
		return cost * math.Exp(-float64(c.now()-since)/float64(fade)) * float64(s.Active()+1) / float64(s.Config().Weight)
	}
	var open []*Server
	for i := range 20_000 {
		c.pass(time.Duration(rnd.IntN(int(100 * time.Millisecond))))
		switch rnd.IntN(4) {
		case 0:
			if len(open) > 0 {
				s := open[0]
				open = open[1:]
				f.end(s, 1)
				if s.ID()%4 != 3 { // some never answer
					f.Observe(s, time.Duration(rnd.IntN(int(time.Second))))
					observed[s] = true
				}
			}
		case 1:
			if rnd.IntN(50) == 0 {
				s := f.servers[rnd.IntN(len(f.servers))]
				f.Remove(s)
				f.Insert(s)
				if !observed[s] {
					began[s] = c.now()
				}
			}
		default:
			least := math.Inf(1)
			for s := range f.Servers() {
				if f.Available(s) {
					least = min(least, load(s))
				}
			}
			s := f.Peek(nil)
			if got := load(s); got > least*(1+1e-6) {
				t.Fatalf("pick %d: want a load of %v, got %v of %s", i, least, got, call(s))
			}
			if s = f.Pick(nil, Active); len(open) < 60 {
				open = append(open, s)
			} else {
				f.end(s, 1)
			}
		}
	}
}

// TestSlowServer runs servers with different response times: the slower one gets
// measurably less, and its share again once it is fast.
func TestSlowServer(t *testing.T) {
	var c clock
	f := newFleet(t, "least-time", Options{Now: c.now}, weights(1, 1, 1)...)
	takes := []time.Duration{10 * time.Millisecond, 10 * time.Millisecond, 80 * time.Millisecond}
	type request struct {
		s     *Server
		began time.Duration
	}
	var open []request
	run := func(d time.Duration) (n [3]int) {
		for end := c.now() + d; c.now() < end; c.pass(time.Millisecond) {
			keep := open[:0]
			for _, r := range open {
				if age := c.now() - r.began; age >= takes[r.s.ID()] {
					f.Observe(r.s, age)
					f.end(r.s, 1)
				} else {
					keep = append(keep, r)
				}
			}
			open = keep
			s := f.Pick(nil, Active)
			n[s.ID()]++
			open = append(open, request{s, c.now()})
		}
		return n
	}
	if n := run(20 * time.Second); n[2]*4 > n[0] || n[2] == 0 {
		t.Errorf("C is 8 times slower: want some, less than a quarter of A's %d, got %d", n[0], n[2])
	}
	takes[2] = takes[0]
	run(30 * time.Second)
	if n := run(10 * time.Second); n[2]*5 < n[0]*4 {
		t.Errorf("C is fast again: want about A's %d, got %d", n[0], n[2])
	}
}

// TestLeastActive chooses by outstanding requests, not by connections.
func TestLeastActive(t *testing.T) {
	f := newFleet(t, "least-active", Options{}, weights(1, 1, 2)...)
	a, b, c := f.servers[0], f.servers[1], f.servers[2]
	f.hold(a, 1)
	f.hold(b, 100)
	f.hold(c, 100)
	f.Request(a, 2)
	f.Request(b, 1)
	f.Request(c, 1)
	// 2/1, 1/1 and 1/2.
	if want, got := "C", f.shorts(1); want != got {
		t.Errorf("want %s, got %s", want, got)
	}
	f.Request(c, 1) // ties with B; connections for the weight decide
	if want, got := "C", f.shorts(1); want != got {
		t.Errorf("want %s, got %s", want, got)
	}
	f.Request(b, -1)
	if want, got := "B", f.shorts(1); want != got {
		t.Errorf("want %s, got %s", want, got)
	}
	for _, s := range f.servers {
		f.Request(s, -int(s.Busy()))
	}
	if want, got := "A", f.shorts(1); want != got {
		t.Errorf("all quiet, the least connections: want %s, got %s", want, got)
	}
}
