package nfqueue

import (
	"testing"
	"time"
)

// TestGatherCrowds gathers packets only where many come together.
func TestGatherCrowds(t *testing.T) {
	for _, test := range []struct {
		name             string
		d                time.Duration
		packets, batches int
		want             bool
	}{
		{"nothing", crowdTime, 0, 0, false},
		{"few, together", crowdTime, 19, 2, false},
		{"one at a time, however fast", crowdTime, 200, 190, false},
		{"many, together", crowdTime, 40, 30, true},
		{"as many in a longer time", 2 * crowdTime, 40, 30, true},
		{"too few for a longer time", 3 * crowdTime, 40, 30, false},
	} {
		g := gather{crowd: !test.want, packets: test.packets, batches: test.batches}
		if g.look(time.Hour, test.d); g.crowd != test.want {
			t.Errorf("%s: want %v", test.name, test.want)
		}
		if g.packets != 0 || g.batches != 0 {
			t.Errorf("%s: counts go on", test.name)
		}
	}
}

// TestGatherPauses gathers no more while others keep the processor, tries it again
// ever more seldom, and as before when it has paid again.
func TestGatherPauses(t *testing.T) {
	var g gather
	var now time.Duration
	// run has a crowd come and wait so long each time, and returns the time until
	// the crowd is gathered, at most so long.
	run := func(wait, most time.Duration) (rest time.Duration) {
		begun := now
		for !g.crowd && now-begun < most {
			now += crowdTime
			g.came(100)
			g.look(now, crowdTime)
		}
		rest = now - begun
		for i := 0; g.crowd && i < gatherSample; i++ {
			g.waited(wait)
			if g.crowd {
				g.came(100)
				g.look(now, crowdTime)
			}
		}
		return rest
	}
	if rest := run(longWait/2, time.Minute); rest != crowdTime || !g.crowd {
		t.Fatalf("short waits: gathered after %v, still %v", rest, g.crowd)
	}
	g.waited(time.Hour)
	if run(longWait/2, time.Minute); !g.crowd {
		t.Fatal("one long wait: not gathered")
	}
	g.waits, g.took = 0, 0
	run(2*longWait, time.Minute)
	if g.crowd {
		t.Fatal("long waits: still gathered")
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 16} {
		want = want*time.Second + crowdTime
		if rest := run(2*longWait, time.Minute); rest != want {
			t.Errorf("long waits: want %v without, got %v", want, rest)
		}
	}
	run(longWait/2, time.Minute)
	if !g.crowd {
		t.Error("short waits again: not gathered")
	}
	run(2*longWait, time.Minute)
	if rest := run(longWait/2, time.Minute); rest != time.Second+crowdTime {
		t.Errorf("long waits again: want %v without, got %v", time.Second+crowdTime, rest)
	}
}
