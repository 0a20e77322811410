package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// lbd --clear gives back the addresses, whether this kernel has IPVS or has none
// any more.
func TestNetnsClear(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	ns.AddAddr("lo", "192.0.2.1/32")
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := memory.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Save(memory.Memory{
		NetNS:    ns.Path(),
		Owned:    map[ipvs.ServiceKey]struct{}{key(vip): {}},
		Sysctls:  map[string]int{"expire_nodest_conn": 0},
		Timeouts: ipvs.Timeouts{TCP: 15 * time.Minute},
		VIPs:     map[memory.VIP]struct{}{{Interface: "lo", Prefix: netip.MustParsePrefix("192.0.2.1/32")}: {}},
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := Clear(t.Context(), dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("clear: %v", err)
	}
	if got := fmt.Sprint(ns.Addrs("lo")); strings.Contains(got, "192.0.2.1") {
		t.Errorf("addresses: want no VIP, got %s", got)
	}
}
