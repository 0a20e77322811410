package sched

import (
	"math"
	"time"
)

// fade is how long an observation of a response time counts: after this long
// without another one it has lost 63 percent of its weight.
const fade = 10 * time.Second

// latency is a peak-sensitive moving average of response times: a response
// slower than the average replaces it at once, a faster one is blended in with
// a weight that grows with the time since the last observation. So a server that
// becomes slow is avoided after one response, and forgiven over several seconds.
// The rule is known as peak EWMA (github.com/twitter/finagle,
// com.twitter.finagle.loadbalancer.PeakEwma).
type latency struct {
	// cost is the average in nanoseconds, as of stamp. 0: nothing observed.
	cost  float64
	stamp time.Duration
}

// observe adds a response time of d that ended at now.
func (l *latency) observe(d, now time.Duration) {
	cost := float64(max(d, 1))
	if cost < l.cost {
		w := math.Exp(-float64(max(now-l.stamp, 0)) / float64(fade))
		cost = l.cost*w + cost*(1-w)
	}
	l.cost, l.stamp = cost, max(now, l.stamp)
}

func (l *latency) average() time.Duration { return time.Duration(l.cost) }
