package oracle

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// Addresses of the lab. Every service has a subnet of virtual addresses.
var (
	fenceFrom = netip.MustParseAddr("100.127.0.1")
	fenceTo   = netip.MustParseAddr("10.0.254.1")
)

// linkFence is the link address of the fence's destination.
const linkFence = 0xfe01

const (
	// maxServers is how many real servers a service may have.
	maxServers = 16
	// maxServices is how many services a lab may have, the first is 1.
	maxServices = 64
)

// lab is a balancer with a wire.
type lab struct {
	wire  *wire
	table *ipvs.Client
	ns    *netnstest.NS
	// services is how many services there were: each gets its own addresses.
	services int
}

// newLab makes a balancer and opens the other ends of its devices.
func newLab(t *testing.T) *lab {
	t.Helper()
	netnstest.Require(t, "netns", "ipvs")
	lb, ends := netnstest.New(t), netnstest.New(t)
	netnstest.Veth(lb, "client", ends, "client")
	netnstest.Veth(lb, "server", ends, "server")
	for _, conf := range []string{"all", "default", "client", "server"} {
		lb.SetSysctl("net.ipv4.conf."+conf+".rp_filter", "0")
	}
	lb.SetSysctl("net.ipv4.ip_forward", "1")
	lb.SetSysctl("net.ipv6.conf.all.forwarding", "1")
	for _, dev := range []string{"client", "server"} {
		ends.SetSysctl("net.ipv6.conf."+dev+".disable_ipv6", "1")
	}
	lb.AddAddr("server", "10.0.255.254/16")
	lb.AddAddr("server", "fd00::ffff/64")
	run(t, lb, links(), "ip", "-batch", "-")
	run(t, lb, marks(), "nft", "-f", "-")

	c, err := ipvs.Open(ipvs.WithNetNS(lb.FD()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Flush(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("flush: %v", err)
		}
		c.Close()
	})
	l := &lab{table: c, ns: lb}
	err = ends.Do(func() (err error) {
		l.wire, err = openWire("client", "server")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.wire.close)
	return l
}

// run runs a program in a namespace with a text to read.
func run(t *testing.T, ns *netnstest.NS, text, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(text)
	if _, err := ns.Run(cmd); err != nil {
		t.Fatalf("%s: %v", program, err)
	}
}

// links is what ip reads: every client lives behind the client device, which
// asks for no link addresses, every virtual address is local, and the real
// servers have link addresses with their numbers.
func links() string {
	mac := func(n uint16) string {
		b := link(n)
		return net.HardwareAddr(b[:]).String()
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("link set dev client address %s arp off", mac(linkBalancer))
	line("route add 100.64.0.0/10 dev client")
	line("route add fd64::/16 dev client")
	line("route add local 198.18.0.0/15 dev lo")
	line("route add local fd18::/16 dev lo")
	line("neigh add %s lladdr %s dev server nud permanent", fenceTo, mac(linkFence))
	for i := range maxServers {
		for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
			line("neigh add %s lladdr %s dev server nud permanent", serverAddr(i, f), mac(uint16(i+1)))
		}
	}
	return b.String()
}

// marks is what nft reads: packets to the addresses of service n have mark n.
func marks() string {
	var v4, v6 []string
	for n := range maxServices {
		v4 = append(v4, fmt.Sprintf("198.18.%d.0 : %d", n, n))
		v6 = append(v6, fmt.Sprintf("fd18:%x:: : %d", n, n))
	}
	return fmt.Sprintf(`table inet oracle {
	chain input {
		type filter hook prerouting priority -150
		meta mark set ip daddr & 255.255.255.0 map { %s }
		meta mark set ip6 daddr & ffff:ffff:: map { %s }
	}
}
`, strings.Join(v4, ", "), strings.Join(v6, ", "))
}

func serverAddr(i int, f ipvs.Family) netip.Addr {
	if f == ipvs.IPv6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00::%x", i+1))
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
}

// virtualAddr is the ith virtual address of a service.
func virtualAddr(service, i int, f ipvs.Family) netip.Addr {
	if f == ipvs.IPv6 {
		return netip.MustParseAddr(fmt.Sprintf("fd18:%x::%x", service, i+1))
	}
	return netip.AddrFrom4([4]byte{198, 18, byte(service), byte(i + 1)})
}
