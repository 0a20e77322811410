package sysnet

import "net/netip"

// Needs is what a balancer asks of its host.
type Needs struct {
	// VIPs are the addresses of the virtual services.
	VIPs []netip.Addr
	// VIPInterface gets the VIPs from lbd; empty when someone else places them.
	VIPInterface string
	// Forwarded says that packets to the VIPs are taken as they arrive: the host
	// need not have the addresses.
	Forwarded bool
	// Masq, Direct and Tunnel are the real servers by forwarding method.
	Masq, Direct, Tunnel []netip.Addr
}

// Facts is what a host's network is like, as far as Warnings asks.
type Facts struct {
	// Interfaces are all of the namespace, by name.
	Interfaces map[string]Interface
	// Routes holds the way to each address of the needs.
	Routes map[netip.Addr]Route
	// Defaults are the default routes of the main table, v4 and v6.
	Defaults []Route
	// Forward6 is net.ipv6.conf.all.forwarding.
	Forward6 Switch
	// ConntrackCount is how many connections are tracked, ConntrackMax how many
	// may be; 0 where nothing is tracked.
	ConntrackCount, ConntrackMax int
	// ReuseSticks is whether a client that uses a source port again stays on its
	// real server, whatever the weight of that has become:
	// net.ipv4.vs.conn_reuse_mode and expire_nodest_conn are both 0.
	ReuseSticks bool
}

// Interface is a network device.
type Interface struct {
	Name         string
	Up, Loopback bool
	// Prefixes are its addresses with their prefix lengths.
	Prefixes []netip.Prefix
	// Forward4 is net.ipv4.conf.NAME.forwarding.
	Forward4 Switch
	// RPFilter is the reverse path filter that holds for v4: 0 off, 1 strict,
	// 2 loose; the greater one of net.ipv4.conf.NAME.rp_filter and that of
	// "all". 0 when unknown.
	RPFilter int
}

// Switch is a setting that is on, off, or cannot be read.
type Switch uint8

// The values of a Switch.
const (
	Unknown Switch = iota
	On
	Off
)

// Route is the way to an address.
type Route struct {
	// Local is whether the address is the host's own.
	Local bool
	// Interface is where packets leave, Gateway to whom; a zero Gateway means
	// that the address is on the link.
	Interface string
	Gateway   netip.Addr
	// Err is why there is no route.
	Err error
}
