package icmpcheck

import (
	"net/netip"
	"testing"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// BenchmarkCheck pings a namespace's own loopback address, so that what is
// measured is what a check costs on this side.
func BenchmarkCheck(b *testing.B) {
	netnstest.Require(b, "netns")
	env := healthcheck.Env{Enter: netnstest.New(b).Do}
	k, err := Check{}.NewChecker(netip.MustParseAddrPort("127.0.0.1:0"), env)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Check(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
