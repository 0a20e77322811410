package healthcheck

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

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
