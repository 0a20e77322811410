package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestModeText(t *testing.T) {
	t.Parallel()
	for m, want := range map[Mode]string{ModeNone: "none", ModeDrain: "drain", ModeDisable: "disable"} {
		text, err := m.MarshalText()
		if err != nil || string(text) != want {
			t.Errorf("mode %d: want %q, got %q, %v", m, want, text, err)
		}
		got := Mode(9)
		if err := got.UnmarshalText(text); err != nil || got != m {
			t.Errorf("%q: want %v, got %v, %v", want, m, got, err)
		}
	}
	if _, err := Mode(3).MarshalText(); err == nil {
		t.Error("Mode(3): want an error, got none")
	}
	m := ModeDrain
	if err := m.UnmarshalText([]byte("Drain")); err == nil {
		t.Error("Drain: want an error, got none")
	}
	if err := m.UnmarshalText(nil); err != nil || m != ModeNone {
		t.Errorf("empty text: want none, got %v, %v", m, err)
	}
}

// A ramp goes in a straight line, in steps that do not depend on who asks when,
// and Next names exactly the moments at which the weight may change.
func TestWeightOverrideAt(t *testing.T) {
	t.Parallel()
	begun := time.Unix(1000, 0)
	type point struct {
		After  time.Duration
		Weight uint32
		Next   time.Duration // after Begun; -1 for never
	}
	tests := []struct {
		name     string
		from, to uint32
		over     time.Duration
		want     []point
	}{
		{"at once", 7, 3, 0, []point{{-1, 3, -1}, {0, 3, -1}, {time.Hour, 3, -1}}},
		{"up", 0, 10, 10 * time.Second, []point{
			{-time.Minute, 0, time.Second}, // the clock went back
			{0, 0, time.Second}, {999 * time.Millisecond, 0, time.Second}, {time.Second, 1, 2 * time.Second},
			{5500 * time.Millisecond, 5, 6 * time.Second}, {9 * time.Second, 9, 10 * time.Second},
			{10 * time.Second, 10, -1}, {time.Hour, 10, -1},
		}},
		{"down", 10, 0, 10 * time.Second, []point{{0, 10, time.Second}, {3 * time.Second, 7, 4 * time.Second}, {10 * time.Second, 0, -1}}},
		{"shorter than a step", 5, 9, 300 * time.Millisecond, []point{{0, 5, 300 * time.Millisecond}, {200 * time.Millisecond, 5, 300 * time.Millisecond}, {300 * time.Millisecond, 9, -1}}},
		{"the end is no whole step", 0, 100, 2500 * time.Millisecond, []point{{2 * time.Second, 80, 2500 * time.Millisecond}, {2500 * time.Millisecond, 100, -1}}},
		{"a hundred steps", 0, 65535, 10 * time.Hour, []point{
			{time.Second, 0, 6 * time.Minute}, {6 * time.Minute, 655, 12 * time.Minute}, {5 * time.Hour, 32767, 5*time.Hour + 6*time.Minute},
		}},
		{"years", 65535, 0, 100 * 365 * 24 * time.Hour, []point{{50 * 365 * 24 * time.Hour, 32768, 51 * 365 * 24 * time.Hour}}},
		{"out of range", 1 << 31, 1 << 31, time.Minute, []point{{0, 65535, time.Second}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := WeightOverride{From: tt.from, To: tt.to, Begun: begun, Over: tt.over}
			var got []point
			for _, p := range tt.want {
				now := begun.Add(p.After)
				next := time.Duration(-1)
				if at := w.Next(now); !at.IsZero() {
					next = at.Sub(begun)
				}
				got = append(got, point{p.After, w.At(now), next})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ramp (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOverrideObsolete(t *testing.T) {
	t.Parallel()
	weight := &WeightOverride{To: 5}
	tests := []struct {
		name       string
		o          Override
		configured uint32
		want       bool
	}{
		{"same", Override{Weight: weight, Configured: 3}, 3, false},
		{"edited", Override{Weight: weight, Configured: 3}, 4, true},
		{"edited to what the operator said", Override{Weight: weight, Configured: 3}, 5, true},
		{"no weight", Override{Mode: ModeDrain, Configured: 3}, 4, false},
	}
	for _, tt := range tests {
		if got := tt.o.Obsolete(tt.configured); got != tt.want {
			t.Errorf("%s: want %v, got %v", tt.name, tt.want, got)
		}
	}
}
