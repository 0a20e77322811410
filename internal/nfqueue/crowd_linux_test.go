package nfqueue

import (
	"testing"
	"time"
)

// TestLook gathers packets only where many come together.
func TestLook(t *testing.T) {
	for _, test := range []struct {
		name             string
		d                time.Duration
		packets, batches int
		want             bool
	}{
		{"nothing", tickInterval, 0, 0, false},
		{"few, together", tickInterval, 19, 2, false},
		{"one at a time, however fast", tickInterval, 200, 190, false},
		{"many, together", tickInterval, 40, 30, true},
		{"as many in a longer time", 2 * tickInterval, 40, 30, true},
		{"too few for a longer time", 3 * tickInterval, 40, 30, false},
	} {
		l := &loop{packets: test.packets, batches: test.batches, crowd: !test.want}
		if l.look(test.d); l.crowd != test.want {
			t.Errorf("%s: want %v", test.name, test.want)
		}
		if l.packets != 0 || l.batches != 0 {
			t.Errorf("%s: counts go on", test.name)
		}
	}
}
