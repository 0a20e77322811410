package healthcheck

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// BenchmarkMonitor measures what a run costs apart from its checker, with 10,000
// probes in the schedule: one operation is a hundredth of the interval, about
// 105 runs.
func BenchmarkMonitor(b *testing.B) {
	m := New(Options{Notify: func(Change) {}})
	var probes []Probe
	for i := range 10_000 {
		probes = append(probes, Probe{Method: nop(i), Timing: second})
	}
	if err := m.Set(probes); err != nil {
		b.Fatal(err)
	}
	m.started = true
	now := time.Now()
	for _, p := range m.probes {
		m.enqueue(p, now, len(m.probes))
	}
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(10 * time.Millisecond)
		m.tick(b.Context(), now)
		m.workers.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(max(m.stats.checks, 1)), "ns/check")
}

// nop is a Method whose checks cost nothing.
type nop int

func (n nop) Key() string { return fmt.Sprint("nop", int(n)) }

func (n nop) NewChecker(netip.AddrPort, Env) (Checker, error) { return n, nil }

func (n nop) Check(context.Context) (Result, error) { return Result{Latency: 1}, nil }

// BenchmarkTCP measures a check of a healthy target on loopback, in the own
// namespace and in another.
func BenchmarkTCP(b *testing.B) {
	netnstest.Require(b, "netns")
	ns := netnstest.New(b)
	ln := ns.Listen("tcp", "127.0.0.1:0")
	for name, env := range map[string]Env{"own": {}, "entered": {Enter: ns.Do}} {
		b.Run(name, func(b *testing.B) {
			to := target(ln)
			if name == "own" {
				to = target(listen(b, "127.0.0.1"))
			}
			c, err := TCP{}.NewChecker(to, env)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				ctx, cancel := context.WithTimeout(b.Context(), time.Second)
				if _, err := c.Check(ctx); err != nil {
					b.Fatal(err)
				}
				cancel()
			}
		})
	}
}

// BenchmarkPace measures the processor time of a check over TCP at the pace of
// real use, where waking up for it costs more than the check itself. One operation
// is a second.
func BenchmarkPace(b *testing.B) {
	for _, n := range []int{200, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			to := target(listen(b, "0.0.0.0"))
			m := New(Options{})
			var probes []Probe
			for i := range n {
				a := netip.AddrFrom4([4]byte{127, 1, byte(i / 250), byte(1 + i%250)})
				probes = append(probes, Probe{Method: TCP{}, Target: netip.AddrPortFrom(a, to.Port()), Timing: second})
			}
			if err := m.Set(probes); err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error)
			go func() { ended <- m.Run(ctx) }()
			time.Sleep(3 * time.Second)
			before, cpu := m.Stats(), processorTime(b)
			for b.Loop() {
				time.Sleep(time.Second)
			}
			after := m.Stats()
			checks := float64(max(after.Checks-before.Checks, 1))
			b.ReportMetric(float64((processorTime(b)-cpu).Nanoseconds())/checks, "cpu-ns/check")
			b.ReportMetric(checks/b.Elapsed().Seconds(), "checks/s")
			b.ReportMetric(float64(after.Failures), "failures")
			cancel()
			<-ended
		})
	}
}

// processorTime returns that of this process until now.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
