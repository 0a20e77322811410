package ipvs

import (
	"bytes"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// The benchmarks of the kernel compare the client with ipvsadm, where it is
// installed, on 1,000 services of 20 real servers each.

const benchServices, benchServers = 1000, 20

func benchTable() []Op {
	var ops []Op
	for s := range benchServices {
		svc := service(AddrService(TCP, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(s >> 8), byte(s)}), 80)))
		svc.Scheduler = "wlc"
		ops = append(ops, addService(svc))
		for d := range benchServers {
			n := s*benchServers + d
			a := netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
			if n == 0 {
				a = netip.AddrFrom4([4]byte{10, 255, 0, 1})
			}
			ops = append(ops, addDest(svc.ServiceKey, Destination{Address: netip.AddrPortFrom(a, 80), Weight: 1}))
		}
	}
	return ops
}

// rules is the table as ipvsadm -R reads it.
func rules(ops []Op) []byte {
	var b bytes.Buffer
	for _, op := range ops {
		if op.Kind == OpAddService {
			fmt.Fprintf(&b, "-A -t %v -s wlc\n", op.Service.Address)
		} else {
			fmt.Fprintf(&b, "-a -t %v -r %v -m -w 1\n", op.Service.Address, op.Destination.Address)
		}
	}
	return b.Bytes()
}

// scope ends before the benchmark does.
type scope struct {
	*testing.B
	cleanups []func()
}

func (s *scope) Cleanup(fn func()) { s.cleanups = append(s.cleanups, fn) }

func (s *scope) end() {
	for _, fn := range slices.Backward(s.cleanups) {
		fn()
	}
}

func BenchmarkKernelApply(b *testing.B) {
	ops := benchTable()
	text := rules(ops)
	netnstest.Require(b, "netns", "ipvs")
	for b.Loop() {
		// A namespace each, because deleted real servers stay in a list for two
		// minutes that every new one is looked up in.
		b.StopTimer()
		s := &scope{B: b}
		c, err := Open(WithNetNS(netnstest.New(s).FD()))
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := c.Apply(b.Context(), ops); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		c.Close()
		s.end()
		b.StartTimer()
	}
	ours := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(ours*1000, "ms/table")
	ipvsadm, err := exec.LookPath("ipvsadm")
	if err != nil {
		return
	}
	c, ns := kernelClient(b)
	cmd := exec.Command(ipvsadm, "-R")
	cmd.Stdin = bytes.NewReader(text)
	theirs := timed(b, func() error { _, err := ns.Run(cmd); return err })
	if n := len(mustTable(b, c)); n != benchServices {
		b.Fatalf("ipvsadm made %d services", n)
	}
	b.ReportMetric(theirs*1000, "ipvsadm-ms")
	b.ReportMetric(theirs/ours, "ipvsadm/ours")
}

func BenchmarkKernelTable(b *testing.B) {
	c, ns := kernelClient(b)
	mustApply(b, c, benchTable()...)
	for b.Loop() {
		if table, err := c.Table(b.Context()); err != nil || len(table) != benchServices {
			b.Fatalf("%d services, %v", len(table), err)
		}
	}
	reportListing(b, ns)
}

func BenchmarkKernelCounts(b *testing.B) {
	c, ns := kernelClient(b)
	mustApply(b, c, benchTable()...)
	b.ReportAllocs()
	for b.Loop() {
		if counts, err := c.Counts(b.Context()); err != nil || len(counts) != benchServices*benchServers {
			b.Fatalf("%d counts, %v", len(counts), err)
		}
	}
	reportListing(b, ns)
}

// BenchmarkKernelCountsNamespaces has as many services in another namespace, so
// that /proc/net/ip_vs lacks half of the table.
func BenchmarkKernelCountsNamespaces(b *testing.B) {
	other, _ := kernelClient(b)
	mustApply(b, other, benchTable()...)
	BenchmarkKernelCounts(b)
}

// reportListing compares with the median of three runs of ipvsadm -Ln.
func reportListing(b *testing.B, ns *netnstest.NS) {
	b.Helper()
	ours := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(ours*1000, "ms/reading")
	ipvsadm, err := exec.LookPath("ipvsadm")
	if err != nil {
		return
	}
	var times []float64
	for range 3 {
		times = append(times, timed(b, func() error { _, err := ns.Run(exec.Command(ipvsadm, "-Ln")); return err }))
	}
	slices.Sort(times)
	b.ReportMetric(times[1]*1000, "ipvsadm-ms")
	b.ReportMetric(times[1]/ours, "ipvsadm/ours")
}

func timed(b *testing.B, fn func() error) (seconds float64) {
	b.Helper()
	start := time.Now()
	if err := fn(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start).Seconds()
}
