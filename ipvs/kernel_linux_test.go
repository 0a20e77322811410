package ipvs_test

import (
	"context"
	"testing"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// openKernel returns a client of the kernel's table in a namespace of its own.
func openKernel(t testing.TB) (*ipvs.Client, *netnstest.NS) {
	t.Helper()
	netnstest.Require(t, "netns", "ipvs")
	ns := netnstest.New(t)
	c, err := ipvs.Open(ipvs.WithNetNS(ns.FD()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Flush(context.Background()); err != nil {
			t.Errorf("Flush: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c, ns
}

func TestKernelConformance(t *testing.T) {
	ipvstest.Conformance(t, func(t *testing.T) ipvstest.Table {
		c, _ := openKernel(t)
		return c
	})
}
