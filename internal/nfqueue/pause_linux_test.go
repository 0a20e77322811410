package nfqueue

import (
	"context"
	"math"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// BenchmarkPause measures how long the garbage collector takes to stop the world
// ("/sched/pauses/stopping/gc:seconds"): alone, with the loop in poll, with the
// loop mostly in its raw receive, and with the loop under load.
func BenchmarkPause(b *testing.B) {
	netnstest.Require(b, "netns", "nfqueue")
	b.Run("alone", func(b *testing.B) { benchPause(b) })
	b.Run("poll", func(b *testing.B) { benchReaderPause(b, 0, 0) })
	b.Run("receive", func(b *testing.B) { benchReaderPause(b, 1, time.Millisecond) })
	b.Run("load", func(b *testing.B) { benchReaderPause(b, 500, time.Millisecond) })
}

// benchReaderPause has the loop run and a burst of packets come every interval.
func benchReaderPause(b *testing.B, burst int, interval time.Duration) {
	runtime.GOMAXPROCS(runtime.NumCPU() + 1)
	defer runtime.GOMAXPROCS(runtime.NumCPU())
	ns := netnstest.New(b)
	u := newUDP(b, ns, "127.0.0.1", 1)
	q := open(b, ns, Config{FailOpen: true})
	rule{ns: ns}.add(b)
	stop := run(b, q, markAll)
	ctx, cancel := context.WithCancel(b.Context())
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for burst > 0 && ctx.Err() == nil {
			for range burst {
				u.write([]byte("x"))
			}
			time.Sleep(interval)
		}
	}()
	time.Sleep(20 * time.Millisecond) // let it come to rest
	benchPause(b)
	cancel()
	<-sent
	stop()
}

func benchPause(b *testing.B) {
	sample := []metrics.Sample{{Name: "/sched/pauses/stopping/gc:seconds"}}
	read := func() []uint64 {
		metrics.Read(sample)
		return append([]uint64(nil), sample[0].Value.Float64Histogram().Counts...)
	}
	before := read()
	b.ResetTimer()
	for range b.N {
		runtime.GC()
		time.Sleep(300 * time.Microsecond) // let the loop get back to its wait
	}
	b.StopTimer()
	after := read()
	bounds := sample[0].Value.Float64Histogram().Buckets
	var total uint64
	for i := range after {
		after[i] -= before[i]
		total += after[i]
	}
	for _, p := range []struct {
		unit string
		at   float64
	}{{"p50-us", 0.5}, {"p99-us", 0.99}, {"max-us", 1}} {
		b.ReportMetric(quantile(after, bounds, total, p.at)*1e6, p.unit)
	}
}

// quantile returns the upper bound of the bucket that the quantile is in.
func quantile(counts []uint64, bounds []float64, total uint64, at float64) float64 {
	want := max(uint64(math.Ceil(at*float64(total))), 1)
	var sum uint64
	for i, n := range counts {
		if sum += n; sum >= want && n > 0 {
			return min(bounds[i+1], bounds[len(bounds)-2])
		}
	}
	return 0
}
