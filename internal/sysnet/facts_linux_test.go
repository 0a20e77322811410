package sysnet

import (
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// TestNetnsFacts builds a balancer with two arms, breaks it, and compares both
// what is read and what is said about it.
func TestNetnsFacts(t *testing.T) {
	ns, n := inside(t)
	clients, servers := netnstest.New(t), netnstest.New(t)
	netnstest.Veth(ns, "eth0", clients, "eth0")
	netnstest.Veth(ns, "eth1.5", servers, "eth0")
	ns.AddAddr("eth0", "203.0.113.2/24")
	ns.AddAddr("eth1.5", "10.0.0.1/24")
	ns.AddAddr("eth1.5", "fd00::1/64")
	ns.AddRoute("0.0.0.0/0", "203.0.113.1")
	ns.AddRoute("10.7.0.0/16", "10.0.0.254")
	ns.SetSysctl("net.ipv4.ip_forward", "0")
	ns.SetSysctl("net.ipv4.conf.eth0.forwarding", "1")
	ns.SetSysctl("net.ipv4.conf.all.rp_filter", "0")
	ns.SetSysctl("net.ipv4.conf.eth0.rp_filter", "2")
	if _, err := n.AddVIPs("lo", some("192.0.2.10")); err != nil {
		t.Fatal(err)
	}
	needs := Needs{
		VIPs:   some("192.0.2.10", "192.0.2.11"),
		Masq:   some("10.0.0.2", "10.7.0.2", "fd00::2"),
		Direct: some("10.0.0.3"),
		Tunnel: some("2001:db8:9::1"),
	}
	f, err := n.ReadFacts(needs)
	if err != nil {
		t.Fatal(err)
	}

	sameErr := cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) || errors.Is(b, a) })
	addrs := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	wantRoutes := map[netip.Addr]Route{
		pa("192.0.2.10"):    {Local: true, Interface: "lo"},
		pa("192.0.2.11"):    {Interface: "eth0", Gateway: pa("203.0.113.1")},
		pa("10.0.0.2"):      {Interface: "eth1.5"},
		pa("10.0.0.3"):      {Interface: "eth1.5"},
		pa("10.7.0.2"):      {Interface: "eth1.5", Gateway: pa("10.0.0.254")},
		pa("fd00::2"):       {Interface: "eth1.5"},
		pa("2001:db8:9::1"): {Err: unix.ENETUNREACH},
	}
	if diff := cmp.Diff(wantRoutes, f.Routes, sameErr, addrs); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	wantDefaults := []Route{{Interface: "eth0", Gateway: pa("203.0.113.1")}}
	if diff := cmp.Diff(wantDefaults, f.Defaults, sameErr, addrs); diff != "" {
		t.Errorf("default routes (-want +got):\n%s", diff)
	}
	if i := f.Interfaces["eth0"]; !i.Up || i.Loopback || i.Forward4 != On || i.RPFilter != 2 {
		t.Errorf("eth0: got %+v", i)
	}
	if i := f.Interfaces["eth1.5"]; !i.Up || i.Forward4 != Off {
		t.Errorf("eth1.5: got %+v", i)
	}
	if i := f.Interfaces["lo"]; !i.Loopback {
		t.Errorf("lo: got %+v", i)
	}

	want := []string{
		"virtual service address 192.0.2.11 is not local",
		"no route to real server 2001:db8:9::1: network is unreachable",
		"forwarding is off on eth1.5: the replies of real server 10.0.0.2, 10.7.0.2 (masq) are dropped",
		"v6 forwarding is off: the replies of real server fd00::2 (masq)",
		"real server 10.7.0.2 (masq) is behind the gateway 10.0.0.254",
	}
	got := Warnings(f, needs)
	if len(got) != len(want) {
		t.Fatalf("want %d warnings, got:\n%s", len(want), strings.Join(got, "\n"))
	}
	for i, w := range want {
		if !strings.HasPrefix(got[i], w) {
			t.Errorf("warning %d: want %q, got %q", i, w, got[i])
		}
	}

	// Do what they say, and they are gone.
	ns.SetSysctl("net.ipv4.ip_forward", "1")
	ns.SetSysctl("net.ipv6.conf.all.forwarding", "1")
	if _, err := n.AddVIPs("lo", some("192.0.2.11")); err != nil {
		t.Fatal(err)
	}
	needs.Masq, needs.Tunnel = some("10.0.0.2", "fd00::2"), nil
	f, err = n.ReadFacts(needs)
	if err != nil {
		t.Fatal(err)
	}
	if got := Warnings(f, needs); len(got) != 0 {
		t.Errorf("want no warnings, got:\n%s", strings.Join(got, "\n"))
	}
}

// TestNetnsFactsMultipath has one default route over two gateways.
func TestNetnsFactsMultipath(t *testing.T) {
	ns, n := inside(t)
	other := netnstest.New(t)
	netnstest.Veth(ns, "eth0", other, "eth0")
	netnstest.Veth(ns, "eth1", other, "eth1")
	ns.AddAddr("eth0", "203.0.113.2/24")
	ns.AddAddr("eth1", "198.51.100.2/24")
	if _, err := ns.Run(exec.Command("ip", "route", "add", "default",
		"nexthop", "via", "203.0.113.1", "nexthop", "via", "198.51.100.1")); err != nil {
		t.Fatal(err)
	}
	f, err := n.ReadFacts(Needs{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Route{{Interface: "eth0", Gateway: pa("203.0.113.1")}, {Interface: "eth1", Gateway: pa("198.51.100.1")}}
	if diff := cmp.Diff(want, f.Defaults, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("default routes (-want +got):\n%s", diff)
	}
}

func TestRetryDump(t *testing.T) {
	for _, interrupted := range []int{0, 1, dumpTries - 1, dumpTries, dumpTries + 5} {
		calls := 0
		list, err := retryDump(func() ([]int, error) {
			calls++
			if calls <= interrupted {
				return []int{1}, netlink.ErrDumpInterrupted
			}
			return []int{1, 2}, nil
		})
		if interrupted < dumpTries {
			if err != nil || len(list) != 2 || calls != interrupted+1 {
				t.Errorf("%d interruptions: got %v, %v after %d calls", interrupted, list, err, calls)
			}
		} else if !errors.Is(err, netlink.ErrDumpInterrupted) || list != nil || calls != dumpTries {
			t.Errorf("%d interruptions: want an error and nothing half read, got %v, %v after %d calls", interrupted, list, err, calls)
		}
	}
}
