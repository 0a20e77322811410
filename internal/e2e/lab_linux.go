package e2e

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// Mode is how packets reach the real servers and how answers come back.
type Mode string

// The modes, by ipvsadm's words in lower case.
const (
	// Masq sends the servers' answers back through the balancer.
	Masq Mode = "masq"
	// Route gives the servers the VIPs, on lo and without ARP, and a way to the
	// client that does not pass the balancer.
	Route Mode = "route"
	// Tunnel is Route with servers that unpack ipip, by devices where the kernel
	// has them.
	Tunnel Mode = "tunnel"
)

// The addresses of a Lab. All are of ranges reserved for documentation or
// private use, and exist only inside its namespaces.
const (
	// VIP4 and VIP6 are not assigned until AddVIP, or lbd's vip_interface, does.
	// The client routes all of their networks to the balancer: for an IPv6 address
	// on lo, the balancer would not answer neighbour solicitations.
	VIP4 = "192.0.2.10"
	VIP6 = "2001:db8::10"

	vipNet4, vipNet6               = "192.0.2.0/24", "2001:db8::/64"
	frontNet4, frontNet6           = "198.51.100.0/24", "2001:db8:1::/64"
	clientFront4, clientFront6     = "198.51.100.100", "2001:db8:1::100"
	balancerFront4, balancerFront6 = "198.51.100.1", "2001:db8:1::1"
	balancerBack4, balancerBack6   = "10.0.0.1", "fd00::1"
	clientBack4, clientBack6       = "10.0.0.100", "fd00::100"
	serverBack4, serverBack6       = "10.0.0.%d", "fd00::%d"
	defaultRoute4, defaultRoute6   = "0.0.0.0/0", "::/0"

	// firstServerNumber is the last part of the first server's addresses.
	firstServerNumber = 2
)

// Lab is a client, a balancer and real servers in namespaces of their own.
//
//	client eth0 ---------- front balancer back ---+
//	client eth1 ----------------------------------+-- switch (a bridge)
//	                                 server eth0 -+
//
// The client's eth1 is used by the servers' answers in the modes Route and
// Tunnel only.
type Lab struct {
	Client, Balancer *netnstest.NS
	// Servers are named s1, s2, ... with the addresses 10.0.0.2 and fd00::2 up.
	Servers []*Server
	Mode    Mode

	t     netnstest.TB
	hub   *netnstest.NS
	mu    sync.Mutex
	gates map[string]chan struct{}
	// arrivals are the servers that got the last connections to HTTPPort.
	arrivals []string
}

// NewLab builds a Lab for the duration of the test, its servers serving.
func NewLab(t netnstest.TB, mode Mode, servers int) *Lab {
	t.Helper()
	l := &Lab{
		Client:   netnstest.New(t),
		Balancer: netnstest.New(t),
		Mode:     mode,
		t:        t,
		hub:      netnstest.New(t),
		gates:    make(map[string]chan struct{}),
	}
	l.hub.AddBridge("br0")
	plug := func(n *netnstest.NS, dev, port string, prefixes ...string) {
		netnstest.Veth(n, dev, l.hub, port)
		l.hub.AddPort("br0", port)
		for _, p := range prefixes {
			n.AddAddr(dev, p)
		}
	}
	netnstest.Veth(l.Client, "eth0", l.Balancer, "front")
	l.Client.AddAddr("eth0", clientFront4+"/24")
	l.Client.AddAddr("eth0", clientFront6+"/64")
	l.Balancer.AddAddr("front", balancerFront4+"/24")
	l.Balancer.AddAddr("front", balancerFront6+"/64")
	l.Client.AddRoute(vipNet4, balancerFront4)
	l.Client.AddRoute(vipNet6, balancerFront6)
	plug(l.Balancer, "back", "balancer", balancerBack4+"/24", balancerBack6+"/64")
	if mode != Masq {
		plug(l.Client, "eth1", "client", clientBack4+"/24", clientBack6+"/64")
	}
	l.Balancer.SetSysctl("net.ipv4.ip_forward", "1")
	l.Balancer.SetSysctl("net.ipv6.conf.all.forwarding", "1")
	for i := range servers {
		s := newServer(l, i)
		plug(s.NS, "eth0", s.Name, s.V4.String()+"/24", s.V6.String()+"/64")
		l.routeAnswers(s)
		l.Servers = append(l.Servers, s)
	}
	for _, s := range l.Servers {
		s.Open(HTTPPort)
		s.Open(HealthPort)
		s.openUDP(s.V4)
		s.openUDP(s.V6)
	}
	return l
}

// routeAnswers sets a server up for the way that its answers take.
func (l *Lab) routeAnswers(s *Server) {
	if l.Mode == Masq {
		s.NS.AddRoute(defaultRoute4, balancerBack4)
		s.NS.AddRoute(defaultRoute6, balancerBack6)
		return
	}
	s.NS.AddRoute(frontNet4, clientBack4)
	s.NS.AddRoute(frontNet6, clientBack6)
	// The server has the VIP but must not say so on the network.
	s.NS.SetSysctl("net.ipv4.conf.all.arp_ignore", "1")
	s.NS.SetSysctl("net.ipv4.conf.all.arp_announce", "2")
	switch {
	case l.Mode == Tunnel && netnstest.Have("ipip") != nil:
		s.NS.Unwrap()
	case l.Mode == Tunnel:
		s.NS.AddIPIP("ipip", s.V4.String())
		s.NS.AddIP6Tunnel("ip6ip6", s.V6.String())
	}
}

// AddVIP gives the balancer an address, and the servers too where the mode
// wants it.
func (l *Lab) AddVIP(vip string) {
	l.t.Helper()
	l.Balancer.AddAddr("lo", hostPrefix(l.t, vip))
	l.ServeVIP(vip)
}

// ServeVIP is AddVIP without the balancer, for addresses that lbd adds.
func (l *Lab) ServeVIP(vip string) {
	l.t.Helper()
	if l.Mode == Masq {
		return
	}
	p := hostPrefix(l.t, vip)
	for _, s := range l.Servers {
		s.NS.AddAddr("lo", p)
		s.openUDP(netip.MustParsePrefix(p).Addr())
	}
}

// Server returns the server of a name; the test ends if there is none.
func (l *Lab) Server(name string) *Server {
	l.t.Helper()
	for _, s := range l.Servers {
		if s.Name == name {
			return s
		}
	}
	l.t.Fatalf("no server %q", name)
	return nil
}

func hostPrefix(t netnstest.TB, addr string) string {
	t.Helper()
	a, err := netip.ParseAddr(addr)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return netip.PrefixFrom(a, a.BitLen()).String()
}

// gate returns the channel whose closing lets a download go on.
func (l *Lab) gate(name string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	g, ok := l.gates[name]
	if !ok {
		g = make(chan struct{})
		l.gates[name] = g
	}
	return g
}

func serverAddr(format string, i int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(format, firstServerNumber+i))
}
