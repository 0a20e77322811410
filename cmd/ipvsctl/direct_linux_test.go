package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// TestKernelListDirect reads a real table in a namespace of its own.
func TestKernelListDirect(t *testing.T) {
	netnstest.Require(t, "netns", "ipvs")
	ns := netnstest.New(t)
	c, err := ipvs.Open(ipvs.WithNetNS(ns.FD()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	web := ipvs.Service{ServiceKey: ipvs.AddrService(ipvs.TCP, netip.MustParseAddrPort("192.0.2.10:80")), Scheduler: "wlc"}
	err = c.Apply(t.Context(), []ipvs.Op{
		{Kind: ipvs.OpAddService, Service: web},
		{Kind: ipvs.OpAddDestination, Service: web, Destination: ipvs.Destination{Address: netip.MustParseAddrPort("10.0.0.2:80"), Weight: 3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	var code int
	err = ns.Do(func() error {
		code = run([]string{"list", "--direct"}, strings.NewReader(""), &out, &errOut)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "  REAL SERVER  FORWARD  WEIGHT  ACTIVE  INACTIVE\n" +
		"TCP 192.0.2.10:80 wlc\n" +
		"  10.0.0.2:80  Masq          3       0         0\n"
	if diff := cmp.Diff(want, out.String()); diff != "" || code != exitDone {
		t.Errorf("exit status %d, %s (-want +got):\n%s", code, errOut.String(), diff)
	}
}
