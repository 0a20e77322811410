package netnstest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Veth joins two namespaces with a pair of virtual Ethernet devices, named
// nameA in a and nameB in b, both up.
func Veth(a *NS, nameA string, b *NS, nameB string) {
	a.t.Helper()
	veth := netlink.NewVeth(netlink.NewLinkAttrs())
	veth.Name, veth.PeerName, veth.PeerNamespace = nameA, nameB, netlink.NsFd(b.FD())
	if err := a.nl.LinkAdd(veth); err != nil {
		a.t.Fatalf("add veth pair %s, %s: %v", nameA, nameB, err)
	}
	a.Up(nameA)
	b.Up(nameB)
}

// AddBridge adds a bridge, up, with the named devices of the namespace as ports.
func (n *NS) AddBridge(name string, ports ...string) {
	n.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	n.addLink(&netlink.Bridge{LinkAttrs: attrs})
	for _, p := range ports {
		n.AddPort(name, p)
	}
}

// AddPort makes a device a port of a bridge.
func (n *NS) AddPort(bridge, port string) {
	n.t.Helper()
	if err := n.nl.LinkSetMaster(n.link(port), n.link(bridge)); err != nil {
		n.t.Fatalf("make %s a port of %s: %v", port, bridge, err)
	}
}

// AddDummy adds a dummy device, up. Not every kernel has them.
func (n *NS) AddDummy(name string) {
	n.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	n.addLink(&netlink.Dummy{LinkAttrs: attrs})
}

// AddIPIP adds a device, up, that unpacks IPv4-in-IPv4 packets sent to local
// from anywhere. Not every kernel has them.
func (n *NS) AddIPIP(name, local string) {
	n.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	n.addLink(&netlink.Iptun{LinkAttrs: attrs, Local: n.ip(local), Remote: net.IPv4zero, Proto: unix.IPPROTO_IPIP})
}

// AddIP6Tunnel adds a device, up, that unpacks IPv6-in-IPv6 packets sent to
// local from anywhere. Not every kernel has them.
func (n *NS) AddIP6Tunnel(name, local string) {
	n.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	n.addLink(&netlink.Ip6tnl{LinkAttrs: attrs, Local: n.ip(local), Remote: net.IPv6zero, Proto: unix.IPPROTO_IPV6})
}

func (n *NS) addLink(l netlink.Link) {
	n.t.Helper()
	if err := n.nl.LinkAdd(l); err != nil {
		n.t.Fatalf("add %s device %s: %v", l.Type(), l.Attrs().Name, err)
	}
	n.Up(l.Attrs().Name)
}

// DeleteLink deletes a device.
func (n *NS) DeleteLink(name string) {
	n.t.Helper()
	if err := n.nl.LinkDel(n.link(name)); err != nil {
		n.t.Fatalf("delete device %s: %v", name, err)
	}
}

// Up sets a device up.
func (n *NS) Up(name string) {
	n.t.Helper()
	if err := n.nl.LinkSetUp(n.link(name)); err != nil {
		n.t.Fatalf("set %s up: %v", name, err)
	}
}

// Down sets a device down.
func (n *NS) Down(name string) {
	n.t.Helper()
	if err := n.nl.LinkSetDown(n.link(name)); err != nil {
		n.t.Fatalf("set %s down: %v", name, err)
	}
}

// AddAddr adds an address with its prefix length, "192.0.2.1/24", to a device.
func (n *NS) AddAddr(dev, prefix string) {
	n.t.Helper()
	if err := n.nl.AddrAdd(n.link(dev), n.addr(prefix)); err != nil {
		n.t.Fatalf("add %s to %s: %v", prefix, dev, err)
	}
}

// DelAddr takes an address from a device.
func (n *NS) DelAddr(dev, prefix string) {
	n.t.Helper()
	if err := n.nl.AddrDel(n.link(dev), n.addr(prefix)); err != nil {
		n.t.Fatalf("take %s from %s: %v", prefix, dev, err)
	}
}

// Addrs returns the addresses of a device with their prefix lengths, without
// IPv6's link-local ones, in the kernel's order.
func (n *NS) Addrs(dev string) []string {
	n.t.Helper()
	list, err := n.nl.AddrList(n.link(dev), netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		n.t.Fatalf("list addresses of %s: %v", dev, err)
	}
	var out []string
	for _, a := range list {
		if !a.IP.IsLinkLocalUnicast() {
			out = append(out, a.IPNet.String())
		}
	}
	return out
}

// AddRoute adds a route to a prefix ("0.0.0.0/0" for the default) through a
// gateway.
func (n *NS) AddRoute(prefix, via string) {
	n.t.Helper()
	if err := n.nl.RouteAdd(&netlink.Route{Dst: n.prefix(prefix), Gw: n.ip(via)}); err != nil {
		n.t.Fatalf("add route to %s via %s: %v", prefix, via, err)
	}
}

// AddRouteDev adds a route to a prefix that is directly on a device.
func (n *NS) AddRouteDev(prefix, dev string) {
	n.t.Helper()
	r := &netlink.Route{Dst: n.prefix(prefix), LinkIndex: n.link(dev).Attrs().Index, Scope: netlink.SCOPE_LINK}
	if err := n.nl.RouteAdd(r); err != nil {
		n.t.Fatalf("add route to %s on %s: %v", prefix, dev, err)
	}
}

func (n *NS) link(name string) netlink.Link {
	n.t.Helper()
	l, err := n.nl.LinkByName(name)
	if err != nil {
		n.t.Fatalf("find device %s: %v", name, err)
	}
	return l
}

func (n *NS) addr(prefix string) *netlink.Addr {
	n.t.Helper()
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		n.t.Fatalf("%v", err)
	}
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

func (n *NS) prefix(s string) *net.IPNet {
	n.t.Helper()
	p, err := netip.ParsePrefix(s)
	if err != nil {
		n.t.Fatalf("%v", err)
	}
	return ipNet(p.Masked())
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (n *NS) ip(s string) net.IP {
	n.t.Helper()
	a, err := netip.ParseAddr(s)
	if err != nil {
		n.t.Fatalf("%v", fmt.Errorf("address: %w", err))
	}
	return a.AsSlice()
}
