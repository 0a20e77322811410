package tunnel

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// TestNetnsRoutes sets tunnels and looks at the routes; internal/userspace/ruleset
// sends packets through them.
func TestNetnsRoutes(t *testing.T) {
	netnstest.Require(t, "netns")
	if err := Flows.Probe(); err != nil {
		t.Fatal(err)
	}
	ns, other := netnstest.New(t), netnstest.New(t)
	netnstest.Veth(ns, "eth0", other, "eth0")
	ns.AddAddr("eth0", "198.51.100.1/24")
	ns.AddAddr("eth0", "2001:db8::1/64")
	routes := func() string {
		t.Helper()
		var all string
		for _, v := range []string{"-4", "-6"} {
			out, err := ns.Run(exec.Command("ip", v, "route"))
			if err != nil {
				t.Fatal(err)
			}
			all += out
		}
		return all
	}
	before := routes()
	tun, err := Flows.Open(ns.FD(), 0xff00)
	if err != nil {
		t.Fatal(err)
	}
	defer tun.Close()
	ends := []End{
		{Mark: 0x100, Address: netip.MustParseAddr("198.51.100.7")},
		{Mark: 0x200, Address: netip.MustParseAddr("2001:db8::7"), Inner6: true},
		{Mark: 0x300, Address: netip.MustParseAddr("203.0.113.7")},
	}
	lost, err := tun.Set(ends)
	if err != nil {
		t.Fatal(err)
	}
	if len(lost) != 1 || lost[0].End != ends[2] || lost[0].Err == nil {
		t.Errorf("want the end without a route told, got %v", lost)
	}
	for _, want := range []string{
		"192.0.0.8  encap bpf xmit lbd_tunnel dev eth0 proto 108 scope link mtu lock 1480",
		"100::8  encap bpf xmit lbd_tunnel dev eth0 proto 108",
	} {
		if got := routes(); !strings.Contains(got, want) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
	if got := tun.ends.String(); tun.count(t) != 2 {
		t.Errorf("want 2 ends in %s, got %d", got, tun.count(t))
	}
	intact := func(want bool) {
		t.Helper()
		if got, err := tun.Intact(); got != want || err != nil {
			t.Errorf("intact: want %v, got %v, %v", want, got, err)
		}
	}
	intact(true)
	// The device goes down and comes back, without the routes; a default route is
	// no replacement.
	ns.Down("eth0")
	ns.Up("eth0")
	ns.AddAddr("eth0", "2001:db8::1/64") // which IPv6 takes away meanwhile
	ns.AddRoute("0.0.0.0/0", "198.51.100.254")
	intact(false)
	if _, err := tun.Set(ends[:2]); err != nil {
		t.Fatal(err)
	}
	intact(true)
	if _, err := ns.Run(exec.Command("ip", "route", "del", "default")); err != nil {
		t.Fatal(err)
	}
	if _, err := tun.Set(ends[:1]); err != nil {
		t.Fatal(err)
	}
	if n := tun.count(t); n != 1 {
		t.Errorf("want 1 end, got %d", n)
	}
	if err := Flows.Remove(ns.FD()); err != nil {
		t.Fatal(err)
	}
	if got := routes(); got != before {
		t.Errorf("after Remove: want\n%s\ngot\n%s", before, got)
	}
	if err := Flows.Remove(ns.FD()); err != nil {
		t.Errorf("Remove where nothing is: %v", err)
	}
}

func (t *Tunnels) count(tb testing.TB) int {
	tb.Helper()
	var key uint32
	var value [valueSize]byte
	n := 0
	it := t.ends.Iterate()
	for it.Next(&key, &value) {
		n++
	}
	if err := it.Err(); err != nil {
		tb.Fatal(err)
	}
	return n
}
