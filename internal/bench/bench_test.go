package bench

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSamples(t *testing.T) {
	var s Samples
	for _, v := range []float64{9, 1, 5} {
		s.Add("cps", "odd", v)
	}
	for _, v := range []float64{2, 40, 4, 1} {
		s.Add("cps", "even", v)
	}
	s.Add("cpu", "odd", 7)
	for _, tt := range []struct {
		what      string
		want, got float64
	}{
		{"median of 9 1 5", 5, s.Median("cps", "odd")},
		{"median of 2 40 4 1", 3, s.Median("cps", "even")},
		{"median of another metric", 7, s.Median("cpu", "odd")},
		{"last", 5, s.Last("cps", "odd")},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: want %g, got %g", tt.what, tt.want, tt.got)
		}
	}
	if got := s.Ratio("cps", "odd", "even"); !math.IsNaN(got) {
		t.Errorf("ratio of 3 and 4 rounds: want NaN, got %g", got)
	}
	if got := s.Median("cps", "nobody"); !math.IsNaN(got) {
		t.Errorf("median of nothing: want NaN, got %g", got)
	}
	if got := s.Last("cps", "nobody"); !math.IsNaN(got) {
		t.Errorf("last of nothing: want NaN, got %g", got)
	}
	if got := s.Ratio("cps", "nobody", "nobody"); !math.IsNaN(got) {
		t.Errorf("ratio of nothing: want NaN, got %g", got)
	}
}

// TestRatioOfRounds has a machine that gets slower by the round: the ratio of
// the medians would be 1.
func TestRatioOfRounds(t *testing.T) {
	var s Samples
	for _, r := range []struct{ a, b, floor float64 }{{50, 100, 20}, {20, 50, 10}, {5, 10, 4}, {100, 20, 10}, {3, 6, 2}} {
		s.Add("cps", "a", r.a)
		s.Add("cps", "b", r.b)
		s.Add("cps", "floor", r.floor)
	}
	if got := s.Ratio("cps", "a", "b"); got != 0.5 {
		t.Errorf("median of 0.5 0.4 0.5 5 0.5: want 0.5, got %g", got)
	}
	if got := s.RatioAbove("cps", "floor", "a", "b"); got != 0.25 {
		t.Errorf("median of 30/80 10/40 1/6 90/10 1/4: want 0.25, got %g", got)
	}
}

func TestPrint(t *testing.T) {
	good := []Result{{"speedup", 12.345678, AtLeast(10)}, {"free", 3, Bar{}}, {"cost", 0.5, AtMost(0.5)}}
	var out, errOut bytes.Buffer
	if !Print(&out, &errOut, "bench", good) {
		t.Errorf("good results miss a bar: %s", &errOut)
	}
	if diff := cmp.Diff("RESULT speedup 12.35\nRESULT free 3\nRESULT cost 0.5\n", out.String()); diff != "" {
		t.Errorf("output (-want +got)\n%s", diff)
	}
	bad := []Result{{"speedup", 9.9, AtLeast(10)}, {"cost", 0.51, AtMost(0.5)}, {"nothing", math.NaN(), AtMost(0.5)}}
	out.Reset()
	if Print(&out, &errOut, "bench", bad) {
		t.Error("bad results miss no bar")
	}
	want := "bench: speedup is 9.9, want at least 10\nbench: cost is 0.51, want at most 0.5\nbench: nothing is NaN, want at most 0.5\n"
	if diff := cmp.Diff(want, errOut.String()); diff != "" {
		t.Errorf("complaints (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff("RESULT speedup 9.9\nRESULT cost 0.51\nRESULT nothing NaN\n", out.String()); diff != "" {
		t.Errorf("output (-want +got)\n%s", diff)
	}
}
