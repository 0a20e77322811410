package sysnet

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func pa(s string) netip.Addr   { return netip.MustParseAddr(s) }
func pp(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func some(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, pa(s))
	}
	return out
}

// twoArm is a host with clients and its default route on eth0 and the real
// servers on eth1, and nothing wrong with it.
func twoArm() (Facts, Needs) {
	f := Facts{
		Interfaces: map[string]Interface{
			"lo":   {Name: "lo", Up: true, Loopback: true, Forward4: On, RPFilter: 1, Prefixes: []netip.Prefix{pp("127.0.0.1/8"), pp("192.0.2.10/32"), pp("2001:db8::10/128")}},
			"eth0": {Name: "eth0", Up: true, Forward4: On, RPFilter: 1, Prefixes: []netip.Prefix{pp("203.0.113.2/24"), pp("2001:db8:1::2/64")}},
			"eth1": {Name: "eth1", Up: true, Forward4: On, RPFilter: 1, Prefixes: []netip.Prefix{pp("10.0.0.1/24"), pp("fd00::1/64")}},
		},
		Routes: map[netip.Addr]Route{
			pa("192.0.2.10"):   {Local: true, Interface: "lo"},
			pa("2001:db8::10"): {Local: true, Interface: "lo"},
			pa("10.0.0.2"):     {Interface: "eth1"},
			pa("10.0.0.3"):     {Interface: "eth1"},
			pa("fd00::2"):      {Interface: "eth1"},
		},
		Defaults:       []Route{{Interface: "eth0", Gateway: pa("203.0.113.1")}},
		Forward6:       On,
		ConntrackCount: 80, ConntrackMax: 100,
	}
	n := Needs{VIPs: some("192.0.2.10", "2001:db8::10"), Masq: some("10.0.0.3", "10.0.0.2", "fd00::2")}
	return f, n
}

func edit(f *Facts, name string, change func(*Interface)) {
	i := f.Interfaces[name]
	change(&i)
	f.Interfaces[name] = i
}

func TestWarnings(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Facts, *Needs)
		want   []string
	}{
		{"nothing wrong", func(*Facts, *Needs) {}, nil},
		{"no needs", func(f *Facts, n *Needs) { *n = Needs{} }, nil},
		{"no facts", func(f *Facts, n *Needs) { *f = Facts{} }, nil},
		{"v4 forwarding off", func(f *Facts, n *Needs) {
			edit(f, "eth1", func(i *Interface) { i.Forward4 = Off })
		}, []string{"forwarding is off on eth1: the replies of real server 10.0.0.2, 10.0.0.3 (masq) are dropped; set net.ipv4.ip_forward=1"}},
		{"reused ports stick", func(f *Facts, n *Needs) { f.ReuseSticks = true }, // B5
			[]string{"net.ipv4.vs.conn_reuse_mode is 0, and expire_nodest_conn too: a client that uses a source port again reaches its real server even at weight 0; set either to 1 under sysctls"}},
		{"reused ports stick where no real server is", func(f *Facts, n *Needs) { *f, *n = Facts{ReuseSticks: true}, Needs{} }, nil},
		{"v4 forwarding off where no real server is", func(f *Facts, n *Needs) {
			edit(f, "eth0", func(i *Interface) { i.Forward4 = Off })
		}, nil},
		{"forwarding unknown", func(f *Facts, n *Needs) {
			edit(f, "eth1", func(i *Interface) { i.Forward4 = Unknown })
			f.Forward6 = Unknown
		}, nil},
		{"v6 forwarding off", func(f *Facts, n *Needs) { f.Forward6 = Off },
			[]string{"v6 forwarding is off: the replies of real server fd00::2 (masq) are dropped; set net.ipv6.conf.all.forwarding=1"}},
		{"forwarding off without masq", func(f *Facts, n *Needs) {
			edit(f, "eth1", func(i *Interface) { i.Forward4 = Off })
			f.Forward6 = Off
			n.Direct, n.Tunnel, n.Masq = n.Masq[:1], n.Masq[1:], nil
		}, nil},
		{"real server on this host", func(f *Facts, n *Needs) {
			edit(f, "eth1", func(i *Interface) { i.Forward4, i.RPFilter = Off, 0 })
			n.Masq = some("10.0.0.1")
			f.Routes[pa("10.0.0.1")] = Route{Local: true, Interface: "lo"}
		}, nil},
		{"no route", func(f *Facts, n *Needs) {
			f.Routes[pa("10.9.9.9")] = Route{Err: errors.New("network is unreachable")}
			f.Routes[pa("10.9.9.8")] = Route{Err: errors.New("permission denied")}
			n.Tunnel = some("10.9.9.9")
			n.Masq = append(n.Masq, pa("10.9.9.8"))
		}, []string{
			"no route to real server 10.9.9.9: network is unreachable",
			"no route to real server 10.9.9.8: permission denied",
		}},
		{"masq to loopback", func(f *Facts, n *Needs) {
			for _, rs := range some("127.0.0.1", "::1") {
				f.Routes[rs] = Route{Local: true, Interface: "lo"}
				n.Masq = append(n.Masq, rs)
			}
		}, []string{"real server 127.0.0.1, ::1 (masq) is a loopback address: packets from other hosts to it are dropped; use an address of an interface"}},
		{"loopback alone", func(f *Facts, n *Needs) {
			f.Routes[pa("127.0.0.1")] = Route{Local: true, Interface: "lo"}
			f.Routes[pa("127.0.0.9")] = Route{Local: true, Interface: "lo"}
			n.Masq, n.VIPs = append(n.Masq, pa("127.0.0.1")), append(n.VIPs, pa("127.0.0.9"))
		}, nil},
		{"direct routing beyond the link", func(f *Facts, n *Needs) {
			f.Routes[pa("10.9.9.9")] = Route{Interface: "eth1", Gateway: pa("10.0.0.254")}
			n.Direct = some("10.9.9.9")
		}, []string{"real server 10.9.9.9 (route) is behind the gateway 10.0.0.254: direct routing reaches only servers on the same link; use tunnel"}},
		{"masq beyond the link", func(f *Facts, n *Needs) {
			f.Routes[pa("10.9.9.9")] = Route{Interface: "eth1", Gateway: pa("10.0.0.254")}
			n.Masq = some("10.9.9.9")
		}, []string{"real server 10.9.9.9 (masq) is behind the gateway 10.0.0.254: its replies must be routed back through this host"}},
		{"VIP in the real servers' network", func(f *Facts, n *Needs) {
			f.Routes[pa("10.0.0.100")] = Route{Local: true, Interface: "lo"}
			n.VIPs = some("10.0.0.100")
			n.Masq = some("10.0.0.2", "10.0.0.3")
		}, []string{"real server 10.0.0.2, 10.0.0.3 (masq) is in the network 10.0.0.0/24 of the virtual service address 10.0.0.100: it answers clients in that network past this host, and their connections fail; use route, or another network"}},
		{"VIP in the network of directly routed servers", func(f *Facts, n *Needs) {
			f.Routes[pa("10.0.0.100")] = Route{Local: true, Interface: "lo"}
			n.VIPs = some("10.0.0.100")
			n.Direct, n.Masq = some("10.0.0.2", "10.0.0.3"), nil
		}, nil},
		{"one arm", func(f *Facts, n *Needs) {
			f.Routes[pa("203.0.113.50")] = Route{Interface: "eth0"}
			n.Masq = some("203.0.113.50")
			n.VIPs = some("192.0.2.10")
		}, []string{
			"real server 203.0.113.50 (masq) is in the network 203.0.113.0/24 of the default gateway 203.0.113.1: its replies come back only if its own gateway is this host",
			"rp_filter is strict on eth1, which has no default route: requests that arrive there from beyond its own networks are dropped, unless the route back to the client leaves there too; otherwise set net.ipv4.conf.eth1.rp_filter=2",
		}},
		{"second uplink with a strict filter", func(f *Facts, n *Needs) {
			f.Interfaces["eth2.7"] = Interface{Name: "eth2.7", Up: true, RPFilter: 1, Prefixes: []netip.Prefix{pp("198.51.100.2/24")}}
		}, []string{"rp_filter is strict on eth2.7, which has no default route: requests that arrive there from beyond its own networks are dropped, unless the route back to the client leaves there too; otherwise set net.ipv4.conf.eth2/7.rp_filter=2"}},
		{"second uplink with a loose filter", func(f *Facts, n *Needs) {
			f.Interfaces["eth2"] = Interface{Name: "eth2", Up: true, RPFilter: 2, Prefixes: []netip.Prefix{pp("198.51.100.2/24")}}
		}, nil},
		{"second uplink that is down", func(f *Facts, n *Needs) {
			f.Interfaces["eth2"] = Interface{Name: "eth2", RPFilter: 1, Prefixes: []netip.Prefix{pp("198.51.100.2/24")}}
		}, nil},
		{"two default routes", func(f *Facts, n *Needs) {
			f.Interfaces["eth2"] = Interface{Name: "eth2", Up: true, RPFilter: 1, Prefixes: []netip.Prefix{pp("198.51.100.2/24")}}
			f.Defaults = append(f.Defaults, Route{Interface: "eth2", Gateway: pa("198.51.100.1")})
		}, nil},
		{"strict filter with v6 services only", func(f *Facts, n *Needs) {
			f.Interfaces["eth2"] = Interface{Name: "eth2", Up: true, RPFilter: 1, Prefixes: []netip.Prefix{pp("198.51.100.2/24")}}
			n.VIPs = some("2001:db8::10")
		}, nil},
		{"VIP of nobody", func(f *Facts, n *Needs) {
			f.Routes[pa("192.0.2.11")] = Route{Interface: "eth0", Gateway: pa("203.0.113.1")}
			n.VIPs = append(n.VIPs, pa("192.0.2.11"))
		}, []string{"virtual service address 192.0.2.11 is not local to this host: packets to it pass by; set vip_interface, or add it to an interface"}},
		{"VIP of nobody that is forwarded", func(f *Facts, n *Needs) {
			f.Routes[pa("192.0.2.11")] = Route{Interface: "eth0", Gateway: pa("203.0.113.1")}
			n.VIPs = append(n.VIPs, pa("192.0.2.11"))
			n.Forwarded = true
		}, nil},
		{"VIP that lbd places", func(f *Facts, n *Needs) {
			f.Routes[pa("192.0.2.11")] = Route{Interface: "eth0", Gateway: pa("203.0.113.1")}
			n.VIPs = append(n.VIPs, pa("192.0.2.11"))
			n.VIPInterface = "lo"
		}, nil},
		{"no VIP interface", func(f *Facts, n *Needs) { n.VIPInterface = "vip0" },
			[]string{"vip_interface vip0 does not exist"}},
		{"VIP interface down", func(f *Facts, n *Needs) {
			f.Interfaces["vip0"] = Interface{Name: "vip0"}
			n.VIPInterface = "vip0"
		}, []string{"vip_interface vip0 is down: v6 addresses on it do not work; run ip link set vip0 up"}},
		{"conntrack at the limit of the alarm", func(f *Facts, n *Needs) { f.ConntrackCount = 81 },
			[]string{"connection tracking holds 81 of 100 entries (81 %): when it is full, new connections are dropped; raise net.netfilter.nf_conntrack_max"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, n := twoArm()
			tt.change(&f, &n)
			if diff := cmp.Diff(tt.want, []string(Warnings(f, n))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarningsList(t *testing.T) {
	var addrs []netip.Addr
	for i, want := range []string{
		"10.0.0.0", "10.0.0.0, 10.0.0.1", "10.0.0.0, 10.0.0.1, 10.0.0.2",
		"10.0.0.0, 10.0.0.1, 10.0.0.2, 10.0.0.3", "10.0.0.0, 10.0.0.1, 10.0.0.2 and 2 more",
	} {
		a := pa(fmt.Sprintf("10.0.0.%d", i))
		addrs = append([]netip.Addr{a, a}, addrs...)
		if got := list(addrs); got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	}
}
