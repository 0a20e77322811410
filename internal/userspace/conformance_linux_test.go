package userspace

import (
	"log/slog"
	"testing"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

var _ ipvstest.Limited = (*Engine)(nil)

// conformance runs the suite that the kernel's table passes. The marks that its
// services have leave other bits to the engine than usual.
func conformance(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	ipvstest.Conformance(t, func(t *testing.T) ipvstest.Table {
		ns := netnstest.New(t)
		e, err := Open(t.Context(), Options{
			NetNS: ns.FD(), Enter: ns.Do, QueueBase: 100, FailOpen: true, Store: &fakeStore{},
			MarkMask: 0x1ffe0000, StateMask: 0xe0000000, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	})
}

// TestNetnsConformance is for the host's kernel, TestKernelUserspaceConformance
// for that of the virtual machine.
func TestNetnsConformance(t *testing.T) { conformance(t) }

func TestKernelUserspaceConformance(t *testing.T) {
	netnstest.Require(t, "ipvs") // the virtual machine's, for short
	conformance(t)
}
