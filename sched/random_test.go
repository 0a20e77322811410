package sched

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// shares picks n times, uncounted, and returns each server's part.
func (f *fleet) shares(n int) []float64 {
	count := make([]float64, len(f.servers))
	for range n {
		count[f.Pick(nil, Uncounted).ID()]++
	}
	for i := range count {
		count[i] /= float64(n)
	}
	return count
}

func TestRandomShares(t *testing.T) {
	for _, tt := range []struct {
		name    string
		weights []uint32
		want    []float64
	}{
		{"random", []uint32{1, 1, 1, 1}, []float64{.25, .25, .25, .25}},
		{"random", []uint32{9, 0, 1}, []float64{.5, 0, .5}},
		{"wrandom", []uint32{5, 3, 2}, []float64{.5, .3, .2}},
		{"wrandom", []uint32{0, 65535, 0, 65535}, []float64{0, .5, 0, .5}},
		{"wrandom", []uint32{1, 0, 0}, []float64{1, 0, 0}},
		{"p2c", []uint32{1, 1, 1, 1}, []float64{.25, .25, .25, .25}},
		// The kernel draws from 0 to the total: of 0, 1, 2 two mean A.
		{"twos", []uint32{1, 1}, []float64{2. / 3, 1. / 3}},
		{"twos", []uint32{50, 0, 49}, []float64{.51, 0, .49}},
	} {
		f := newFleet(t, tt.name, Options{}, weights(tt.weights...)...)
		for i, got := range f.shares(100_000) {
			if math.Abs(got-tt.want[i]) > .005 {
				t.Errorf("%s of %v: want %.3f for %c, got %.3f", tt.name, tt.weights, tt.want[i], 'A'+i, got)
			}
		}
	}
}

func TestRandomNeedsRand(t *testing.T) {
	for _, i := range Schedulers() {
		r, _ := lookup(i.Name)
		if _, err := New(i.Name, Options{Rand: zero{}}); errors.Is(err, ErrOption) != r.clock {
			t.Errorf("%s without a clock: %v", i.Name, err)
		}
		if _, err := New(i.Name, Options{Now: newFleet(t, "rr", Options{}).opt.Now}); errors.Is(err, ErrOption) != r.random {
			t.Errorf("%s without random numbers: %v", i.Name, err)
		}
	}
	if _, err := New("wlc", Options{Ties: TiesRandom}); !errors.Is(err, ErrOption) {
		t.Errorf("random ties without random numbers: %v", err)
	}
}

// TestTwosProducts has weights and loads whose products do not fit 32 bits, where
// the kernel's twos goes wrong: the one with less load wins every comparison, so
// the other is taken only when both draws hit it.
func TestTwosProducts(t *testing.T) {
	for _, name := range []string{"twos", "p2c", "wlc", "wlc-fair", "sed", "nq"} {
		f := newFleet(t, name, Options{}, weights(math.MaxInt32, math.MaxUint32)...)
		f.hold(f.servers[0], 100_001)
		f.hold(f.servers[1], 100_000)
		want := 0.
		if name == "twos" {
			want = .25
		}
		if got := f.shares(10_000)[0]; math.Abs(got-want) > .02 {
			t.Errorf("%s: want a share of %v for the server with more load, got %v", name, want, got)
		}
	}
}

// worst holds one connection a server and returns the most that one got.
func worst(t *testing.T, name string, servers int) uint32 {
	f := newFleet(t, name, Options{Rand: rand.NewPCG(5, 6)}, weights(make([]uint32, servers)...)...)
	for _, s := range f.servers {
		f.Update(s, Config{Weight: 1})
	}
	most := uint32(0)
	for range servers {
		most = max(most, f.Pick(nil, Active).Active())
	}
	return most
}

// TestTwoChoices has as many held connections as servers: with one choice the
// most loaded has about log n / log log n, with two about log log n.
func TestTwoChoices(t *testing.T) {
	for name, want := range map[string][2]uint32{"random": {5, 9}, "p2c": {2, 4}, "twos": {2, 4}} {
		if got := worst(t, name, 10_000); got < want[0] || got > want[1] {
			t.Errorf("%s: want at most %d connections on one of 10,000 servers, at least %d, got %d", name, want[1], want[0], got)
		}
	}
	// Held connections follow weights.
	f := newFleet(t, "p2c", Options{}, weights(4, 2, 1)...)
	f.picks(7000, Active)
	for i, want := range []float64{4000, 2000, 1000} {
		if got := float64(f.servers[i].Active()); math.Abs(got-want) > 40 {
			t.Errorf("want about %v connections on %c, got %v", want, 'A'+i, got)
		}
	}
}
