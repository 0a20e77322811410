package sched

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSmooth checks the order of smooth weighted round robin, and that every
// window as long as the sum of the weights has exactly each one's share.
func TestSmooth(t *testing.T) {
	for _, tt := range []struct {
		weights []uint32
		want    string
	}{
		{[]uint32{5, 1, 1}, "AABACAAAABACAA"},
		{[]uint32{5, 3, 2}, "ABCAABACBA"},
		{[]uint32{1, 1, 1}, "ABCABC"},
		{[]uint32{2, 0, 1}, "ACAACA"},
		{[]uint32{4}, "AAA"},
		{[]uint32{0, 0}, "--"},
	} {
		f := newFleet(t, "swrr", Options{}, weights(tt.weights...)...)
		if got := f.picks(len(tt.want), Active); tt.want != got {
			t.Errorf("%v: want %s, got %s", tt.weights, tt.want, got)
		}
	}
	for _, w := range [][]uint32{{5, 3, 2}, {5, 1, 1}, {7, 5, 3, 1, 1}} {
		f := newFleet(t, "swrr", Options{}, weights(w...)...)
		sum := 0
		for _, n := range w {
			sum += int(n)
		}
		picks := f.picks(sum*20, Active)
		for i := 0; i+sum <= len(picks); i++ {
			for j, n := range w {
				if got := strings.Count(picks[i:i+sum], string(rune('A'+j))); got != int(n) {
					t.Fatalf("%v, picks %d to %d, %s: want %d of %c, got %d", w, i, i+sum, picks[i:i+sum], n, 'A'+j, got)
				}
			}
		}
	}
}

// TestSmoothWraps has the count of turns, which everything is computed from, wrap
// around.
func TestSmoothWraps(t *testing.T) {
	f := newFleet(t, "swrr", Options{})
	f.sched.(*smooth).turns = math.MaxInt64 - 20
	for i, w := range []uint32{math.MaxInt32, 1, 1} {
		s := testServer(2-i, Config{Weight: w})
		f.servers = append(f.servers, s)
		f.Insert(s)
	}
	f.Update(f.servers[0], Config{Weight: 5})
	if want, got := strings.Repeat("CCACBCC", 10), f.picks(70, Active); want != got {
		t.Errorf("want %s, got %s", want, got)
	}
}

// TestFairRotates has equal servers take turns by weight where connections are so
// short that no count tells them apart; kernel wlc gives all to the first.
func TestFairRotates(t *testing.T) {
	f := newFleet(t, "wlc-fair", Options{}, weights(10, 10, 1)...)
	picks := f.shorts(210)
	for i := 0; i+21 <= len(picks); i++ {
		w := picks[i : i+21]
		got := []int{strings.Count(w, "A"), strings.Count(w, "B"), strings.Count(w, "C")}
		if diff := cmp.Diff([]int{10, 10, 1}, got); diff != "" {
			t.Fatalf("picks %d to %d, %s (-want +got):\n%s", i, i+21, w, diff)
		}
	}
	// No burst of one server as long as its weight.
	if strings.Contains(picks, "AAA") || strings.Contains(picks, "BBB") {
		t.Errorf("bursts in %s", picks)
	}
}

// TestFairIsLeast has it choose by load where loads differ, and rotate only among
// those that are equal.
func TestFairIsLeast(t *testing.T) {
	f := newFleet(t, "wlc-fair", Options{}, weights(2, 1, 1)...)
	f.hold(f.servers[0], 2)
	f.hold(f.servers[1], 1)
	if want, got := "CCCC", f.shorts(4); want != got {
		t.Errorf("want the idle one, %s, got %s", want, got)
	}
	f.hold(f.servers[2], 1)
	if want, got := "ABCAABCA", f.shorts(8); want != got {
		t.Errorf("equals of weights 2, 1, 1: want %s, got %s", want, got)
	}
	// Held connections end up by weight.
	f = newFleet(t, "wlc-fair", Options{}, weights(4, 2, 1)...)
	f.picks(700, Active)
	if diff := cmp.Diff([]uint32{400, 200, 100}, f.active()); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}

// TestTies breaks the ties of idle servers by each rule.
func TestTies(t *testing.T) {
	for _, name := range []string{"lc", "wlc", "sed", "nq", "least-active", "least-time"} {
		t.Run(name, func(t *testing.T) {
			first := newFleet(t, name, Options{}, weights(1, 1, 1, 1)...)
			if want, got := "AAAA", first.shorts(4); want != got {
				t.Errorf("first: want %s, got %s", want, got)
			}
			turns := newFleet(t, name, Options{Ties: TiesRoundRobin}, weights(1, 1, 1, 1)...)
			if want, got := "ABCDABCD", turns.shorts(8); want != got {
				t.Errorf("round robin: want %s, got %s", want, got)
			}
			// One-packet picks count nothing, and take turns nevertheless.
			if want, got := "ABCDABCD", turns.picks(8, Uncounted); want != got {
				t.Errorf("round robin, uncounted: want %s, got %s", want, got)
			}
			// A load still decides.
			turns.hold(turns.servers[1], 1)
			turns.Request(turns.servers[1], 1)
			if want, got := "ACDACD", turns.shorts(6); want != got {
				t.Errorf("round robin, B loaded: want %s, got %s", want, got)
			}
			random := newFleet(t, name, Options{Ties: TiesRandom}, weights(1, 1, 1, 1)...)
			random.hold(random.servers[2], 1)
			random.Request(random.servers[2], 1)
			picks := random.shorts(30000)
			for i, want := range []float64{10000, 10000, 0, 10000} {
				n := strings.Count(picks, string(rune('A'+i)))
				if math.Abs(float64(n)-want) > 300 {
					t.Errorf("random: want about %v of %c, got %d", want, 'A'+i, n)
				}
			}
			// A shuffle, no fixed order: each pair of neighbours comes up.
			for _, pair := range []string{"AA", "AB", "AD", "BA", "BB", "BD", "DA", "DB", "DD"} {
				if n := strings.Count(picks[:5000], pair); n < 400 {
					t.Errorf("random: %s comes up %d times in 5000 picks", pair, n)
				}
			}
		})
	}
}

// TestTiesRefused names why a scheduler takes no tie rule.
func TestTiesRefused(t *testing.T) {
	for name, want := range map[string]string{
		"rr":       "option not possible: ties random: scheduler rr knows no ties",
		"fo":       "option not possible: ties random: scheduler fo keeps to one server",
		"wlc-fair": "option not possible: ties random: scheduler wlc-fair breaks ties itself, by weighted round robin",
	} {
		_, err := New(name, Options{Ties: TiesRandom, Rand: zero{}})
		if err == nil || err.Error() != want {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// zero draws zeros.
type zero struct{}

func (zero) Uint64() uint64 { return 0 }
