package sched

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRingMoves removes one of the servers, with and without weights: its
// clients move, which are about its share, and no other does.
func TestRingMoves(t *testing.T) {
	const keys = 20000
	for _, n := range []int{3, 5, 10, 20, 50} {
		f := newFleet(t, "ring", Options{}, sameWeights(n)...)
		own, others := f.moved(keys, f.servers[n/2])
		share := keys / n
		t.Logf("%d servers: 1/N is %d of %d; %d moved with their server, %d others too", n, share, keys, own, others)
		// 128 points have a standard deviation of a tenth.
		if own < share*70/100 || own > share*130/100 || others != 0 {
			t.Errorf("%d servers: %d of %d clients moved with theirs, want about %d; %d others moved, want none", n, own, keys, share, others)
		}
	}
	f := newFleet(t, "ring", Options{}, weights(1, 2, 5)...)
	own, others := f.moved(keys, f.servers[2])
	if want := keys * 5 / 8; own < want*85/100 || own > want*115/100 || others != 0 {
		t.Errorf("weight 5 of 8: %d of %d clients moved, want about %d; %d others, want none", own, keys, want, others)
	}
}

// TestRingBounded: where the weights ask for more points than there may be, each
// server gets its share, and a server that leaves moves about twice its share.
func TestRingBounded(t *testing.T) {
	const keys, n = 20000, 40
	configs := sameWeights(n)
	for i := range configs {
		configs[i].Weight = 1000 * uint32(1+i%2)
	}
	f := newFleet(t, "ring", Options{}, configs...)
	f.Peek(numbered(0))
	r := f.sched.(*hashed).table.(*ring)
	if got := len(r.points); got > ringSize || got < ringSize*99/100 {
		t.Errorf("%d points, want about %d and not more", got, ringSize)
	}
	if !slices.IsSorted(r.points) {
		t.Error("the points are not in order")
	}
	own, others := f.moved(keys, f.servers[1])
	share := keys * 2 / 60
	t.Logf("share %d of %d: %d moved with their server, %d others too", share, keys, own, others)
	if own < share*80/100 || own > share*120/100 || others > share*150/100 {
		t.Errorf("%d clients moved with their server and %d others, want about %d and at most %d", own, others, share, share*150/100)
	}
	// A weight that rounds to nothing still gets a point.
	f = newFleet(t, "ring", Options{}, weights(1<<31-1, 1)...)
	f.Peek(numbered(0))
	points := map[uint64]int{}
	for _, p := range f.sched.(*hashed).table.(*ring).points {
		points[p&ringIndexMask]++
	}
	if points[1] != 1 || points[0] < ringSize-2 || points[0] > ringSize {
		t.Errorf("points %v, want one of the light server and about %d of the heavy", points, ringSize)
	}
}

// TestRingAgrees: the order in which servers were added makes no difference, so
// that two balancers send a client to the same server.
func TestRingAgrees(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := rapid.SliceOfN(rapid.Uint32Range(0, 9), 1, 20).Draw(rt, "weights")
		f, g := newFleet(t, "ring", Options{}), newFleet(t, "ring", Options{})
		for i := range w {
			f.Insert(testServer(i, Config{Weight: w[i]}))
			j := len(w) - 1 - i
			g.Insert(testServer(j, Config{Weight: w[j]}))
		}
		for n := range 200 {
			a, b := f.Pick(numbered(n), Uncounted), g.Pick(numbered(n), Uncounted)
			if call(a) != call(b) {
				rt.Fatalf("client %d: %s and %s", n, call(a), call(b))
			}
		}
	})
}

// TestRingScan compares the search with one over all points.
func TestRingScan(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := rapid.SliceOfN(rapid.Uint32Range(0, 3), 1, 6).Draw(rt, "weights")
		f := newFleet(t, "ring", Options{Port: true}, weights(w...)...)
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(w)-1), 0, 3).Draw(rt, "failed") {
			f.Update(f.servers[i], Config{})
		}
		p := numbered(rapid.IntRange(0, 1<<20).Draw(rt, "client"))
		got := f.Pick(p, Uncounted)
		r := f.sched.(*hashed).table.(*ring)
		hash := addressHash(p.Src, p.SrcPort) &^ ringIndexMask
		var want *Server
		nearest := ^uint64(0)
		for _, point := range r.points {
			s := r.servers[point&ringIndexMask]
			if d := point - hash; s.available() && d < nearest {
				want, nearest = s, d
			}
		}
		if got != want {
			rt.Fatalf("want %s, got %s", call(want), call(got))
		}
	})
}
