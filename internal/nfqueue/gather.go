package nfqueue

import "time"

const (
	// crowdRate is from how many packets in crowdTime on it pays to wait for the
	// others to send more: 4,000 a second. Where they come more slowly it would gain
	// little.
	crowdRate = 20
	crowdTime = 5 * time.Millisecond
	// Where other programs want the processor all the time, whoever yields waits for
	// their time slices, of 1.4 ms and more: 2.5 to 4 ms each time. So gatherSample
	// waits that are longer than longWait on average end the gathering for minPause,
	// and for twice as long each time in a row, maxPause at most. Clients and servers
	// that only answer each other take 0.4 ms. One wait counts as mostWait at most: the
	// host itself may have been stopped for a moment.
	gatherSample       = 64
	longWait           = 2 * time.Millisecond
	mostWait           = 2 * longWait
	minPause, maxPause = time.Second, 16 * time.Second
)

// gather decides when a receive lets others send more first. The zero value does
// not.
type gather struct {
	// crowd says that it pays.
	crowd bool
	// packets and batches came since the last look.
	packets, batches int
	// waits took so much since the last sample of them.
	waits int
	took  time.Duration
	// Until then nothing is gathered, at first for minPause.
	until, pause time.Duration
	over         bool // of the sample
}

// came counts a batch of n packets.
func (g *gather) came(n int) {
	g.packets += n
	g.batches++
}

// waited counts how long others were waited for.
func (g *gather) waited(d time.Duration) {
	g.took += min(d, mostWait)
	if g.waits++; g.waits < gatherSample {
		return
	}
	if g.took > gatherSample*longWait {
		g.crowd, g.over = false, true
	} else {
		g.pause = 0
	}
	g.waits, g.took = 0, 0
}

// look decides for the time until the next look, by what came in a time d that ends
// now. Where each packet comes alone, nothing can be gathered.
func (g *gather) look(now, d time.Duration) {
	if g.over {
		g.over = false
		g.pause = min(max(minPause, 2*g.pause), maxPause)
		g.until = now + g.pause
	}
	g.crowd = now >= g.until && g.packets >= int(crowdRate*d/crowdTime) && g.packets > g.batches+g.batches/8
	g.packets, g.batches = 0, 0
}
