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

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/userspace"
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

// The userspace engine is cleared where state.json was lost, by its own file or
// its rules alone.
func TestNetnsClearForgotten(t *testing.T) {
	netnstest.Require(t, "netns")
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("engine file kept: %v", keep), func(t *testing.T) {
			ns, dir := netnstest.New(t), t.TempDir()
			const events = "net.netfilter.nf_conntrack_events"
			ns.SetSysctl(events, "2")
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			s, err := memory.Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			e, err := userspace.Open(t.Context(), userspace.Options{NetNS: ns.FD(), Enter: ns.Do, QueueBase: 100, Store: s.EngineFile()})
			if err != nil {
				t.Fatal(errors.Join(err, s.Close()))
			}
			svc := ipvs.Service{ServiceKey: key(vip), Scheduler: "rr"}
			err = e.Apply(t.Context(), []ipvs.Op{{Kind: ipvs.OpAddService, Service: svc}})
			if err == nil && !keep {
				err = s.EngineFile().Save(nil)
			}
			if err := errors.Join(err, e.Close(), s.Close()); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"cleared a userspace engine", "nothing to clear"} {
				var log strings.Builder
				err := ns.Do(func() error {
					return Clear(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil)))
				})
				if err != nil || !strings.Contains(log.String(), want) {
					t.Errorf("want %q in the log, got %v,\n%s", want, err, &log)
				}
			}
			if got := ns.Sysctl(events); keep && got != "2" {
				t.Errorf("%s: want the old 2, got %s", events, got)
			}
		})
	}
}

// A userspace engine that an older lbd left is cleared with the marks that it had,
// which may be fewer than are needed today.
func TestNetnsClearOlderMarks(t *testing.T) {
	netnstest.Require(t, "netns")
	ns, dir := netnstest.New(t), t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := memory.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Save(memory.Memory{
		NetNS: ns.Path(), Engine: string(config.EngineUserspace),
		Owned: map[ipvs.ServiceKey]struct{}{key(vip): {}},
		Marks: memory.Marks{Mask: 0xffff, State: 0x30000, Queue: 100, Queues: 1},
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := Clear(t.Context(), dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("clear: %v", err)
	}
}
