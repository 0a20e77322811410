package sched

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLeastConnectionTrace walks the textbook example of least connections.
func TestLeastConnectionTrace(t *testing.T) {
	f := newFleet(t, "lc", Options{}, weights(1, 1, 1)...)
	a, b := f.servers[0], f.servers[1]
	for i, tt := range []struct {
		end    *Server // a connection of it ends; nil: one begins
		pick   string
		active []uint32
	}{
		{nil, "A", []uint32{1, 0, 0}},
		{nil, "B", []uint32{1, 1, 0}},
		{nil, "C", []uint32{1, 1, 1}},
		{nil, "A", []uint32{2, 1, 1}},
		{a, "", []uint32{1, 1, 1}},
		{nil, "A", []uint32{2, 1, 1}},
		{b, "", []uint32{2, 0, 1}},
		{nil, "B", []uint32{2, 1, 1}},
	} {
		if tt.end != nil {
			f.end(tt.end, 1)
		} else if got := f.picks(1, Active); got != tt.pick {
			t.Errorf("step %d: want %s, got %s", i, tt.pick, got)
		}
		if diff := cmp.Diff(tt.active, f.active()); diff != "" {
			t.Errorf("step %d: active (-want +got):\n%s", i, diff)
		}
	}
}

func TestWeightedLeastConnectionTrace(t *testing.T) {
	// 5/4 against 2/2 and 8/8: B and C tie, B is earlier.
	f := newFleet(t, "wlc", Options{}, weights(4, 2, 8)...)
	for i, n := range []int{5, 2, 8} {
		f.hold(f.servers[i], n)
	}
	if want, got := "B", f.picks(1, Active); want != got {
		t.Errorf("want %s, got %s", want, got)
	}
	f.end(f.servers[1], 1)
	if want, got := "B", f.picks(1, Active); want != got {
		t.Errorf("after B's end: want %s, got %s", want, got)
	}

	f = newFleet(t, "wlc", Options{}, weights(5, 3, 2)...)
	for i, n := range []int{20, 6, 2} {
		f.hold(f.servers[i], n)
	}
	if want, got := "C", f.picks(1, Active); want != got {
		t.Errorf("20/5, 6/3, 2/2: want %s, got %s", want, got)
	}

	f = newFleet(t, "wlc", Options{}, weights(2, 1)...)
	f.picks(3, Active)
	if diff := cmp.Diff([]uint32{2, 1}, f.active()); diff != "" {
		t.Errorf("three held with weights 2:1 (-want +got):\n%s", diff)
	}
}

// TestHeldConnection sends short connections past a server that holds one.
func TestHeldConnection(t *testing.T) {
	f := newFleet(t, "wlc", Options{}, weights(1, 1)...)
	f.hold(f.servers[0], 1)
	if want, got := "BBBBBB", f.shorts(6); want != got {
		t.Errorf("A holds one: want %s, got %s", want, got)
	}
	f.end(f.servers[0], 1)
	if want, got := "AB", f.picks(2, Active); want != got {
		t.Errorf("A holds none: want %s, got %s", want, got)
	}
}

// TestOverheadFormula is the probe that tells the kernels apart: at the head A of
// weight 256 with one active connection, at the tail B of weight 1 with one
// inactive. 256/256 ties with 1/1, 257/256 does not.
func TestOverheadFormula(t *testing.T) {
	for want, o := range map[string]Overhead{"A": OverheadInactive, "B": OverheadTotal} {
		f := newFleet(t, "wlc", Options{Overhead: o}, weights(256, 1)...)
		f.Count(f.servers[0], Uncounted, Active)
		f.Count(f.servers[1], Uncounted, Inactive)
		if got := call(f.Peek(nil)); want != got {
			t.Errorf("overhead %v: want %s, got %s", o, want, got)
		}
	}
}

// TestWeightsIdle has kernel wlc and lc ignore weights where no connection is
// left to count, which surprises people.
func TestWeightsIdle(t *testing.T) {
	for _, name := range []string{"lc", "wlc"} {
		f := newFleet(t, name, Options{}, weights(1, 10, 10)...)
		if want, got := "AAAA", f.shorts(4); want != got {
			t.Errorf("%s: want %s, got %s", name, want, got)
		}
	}
}

func TestExpectedDelay(t *testing.T) {
	for _, tt := range []struct {
		name, sched string
		weights     []uint32
		held        []int
		want        string
	}{
		// (0+1)/1, (0+1)/3: B. Then 2/3: B, then 3/3 ties with 1/1: A is first.
		{"sed counts the new one", "sed", []uint32{1, 3}, []int{0, 0}, "BBABB"},
		// The idle one first, in list order, then as sed.
		{"nq takes the idle", "nq", []uint32{1, 3}, []int{0, 0}, "ABBBBBA"},
		{"nq skips weight 0", "nq", []uint32{0, 3}, []int{0, 2}, "B"},
		{"sed skips weight 0", "sed", []uint32{0, 3}, []int{0, 2}, "B"},
		{"fo stays", "fo", []uint32{1, 3, 3}, []int{0, 9, 0}, "BBB"},
		// Up to weight+1 connections, as in the kernel, then the next weight.
		{"ovf overflows", "ovf", []uint32{1, 2}, []int{0, 0}, "BBBAA-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t, tt.sched, Options{}, weights(tt.weights...)...)
			for i, n := range tt.held {
				f.hold(f.servers[i], n)
			}
			if got := f.picks(len(tt.want), Active); tt.want != got {
				t.Errorf("want %s, got %s", tt.want, got)
			}
		})
	}
}

func TestRoundRobin(t *testing.T) {
	f := newFleet(t, "rr", Options{}, weights(1, 0, 5, 1)...)
	if want, got := "ACDACD", f.picks(6, Active); want != got {
		t.Errorf("want %s, got %s", want, got)
	}
	// The cursor stands at D. Without it the turn is A's, without A then C's.
	f.Remove(f.servers[3])
	if want, got := "A", f.picks(1, Active); want != got {
		t.Errorf("D gone: want %s, got %s", want, got)
	}
	f.Remove(f.servers[0])
	if want, got := "CC", f.picks(2, Active); want != got {
		t.Errorf("A gone: want %s, got %s", want, got)
	}
	// A new head waits for its turn.
	f.Insert(f.servers[0])
	if want, got := "AC", f.picks(2, Active); want != got {
		t.Errorf("A back: want %s, got %s", want, got)
	}
}

func TestWeightedRoundRobin(t *testing.T) {
	for _, tt := range []struct {
		name    string
		weights []uint32
		want    string
	}{
		{"interleaved", []uint32{4, 3, 2}, "AABABCABCAABABCABC"},
		{"gcd", []uint32{20, 10, 10}, "AABCAABC"},
		{"weight 0", []uint32{2, 0, 1}, "AACAAC"},
		{"all 0", []uint32{0, 0}, "--"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t, "wrr", Options{}, weights(tt.weights...)...)
			// Servers that come one by one leave the pass where it was.
			if err := f.Reset("wrr", Options{}); err != nil {
				t.Fatal(err)
			}
			if got := f.picks(len(tt.want), Active); tt.want != got {
				t.Errorf("want %s, got %s", tt.want, got)
			}
		})
	}
}
