package ruleset

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// many is a Spec of n services with m servers each.
func many(n, m int) Spec {
	var s Spec
	mark := uint32(0)
	for i := range n {
		v := Service{ID: uint32(i + 1), Key: ipvs.AddrService(ipvs.TCP,
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), 80))}
		for j := range m {
			mark += 1 << 8
			s.Servers = append(s.Servers, Server{Mark: mark,
				Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(j), byte(i >> 8), byte(i)}), 8080)})
			v.Fallback = append(v.Fallback, Share{Mark: mark, Weight: uint32(100 + j)})
		}
		s.Services = append(s.Services, v)
	}
	return s
}

func openEmpty(tb testing.TB, o Options) *Rules {
	tb.Helper()
	netnstest.Require(tb, "netns")
	o.NetNS = netnstest.New(tb).FD()
	r, err := Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { r.Close() })
	return r
}

func BenchmarkNetnsApply(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("all/%dx20", n), func(b *testing.B) {
			s := many(n, 20)
			for b.Loop() {
				b.StopTimer()
				r := openEmpty(b, Options{FailOpen: true})
				b.StartTimer()
				if err := r.Apply(b.Context(), s); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				r.Close()
				b.StartTimer()
			}
		})
		b.Run(fmt.Sprintf("weight/%dx20", n), func(b *testing.B) {
			s := many(n, 20)
			r := openEmpty(b, Options{FailOpen: true})
			if err := r.Apply(b.Context(), s); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s.Services[n/2].Fallback = slices.Clone(s.Services[n/2].Fallback)
				s.Services[n/2].Fallback[3].Weight++
				if err := r.Apply(b.Context(), s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
