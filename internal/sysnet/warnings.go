package sysnet

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// conntrackAlarm is the percentage of the table that is worth a warning.
const conntrackAlarm = 80

// Warnings returns, in a fixed order, what of the host would keep the balancer
// from working or is about to, each with what to do. It says only what can be
// known from this host: whether a real server has the right gateway, and from
// where clients come, cannot.
func Warnings(f Facts, n Needs) []string {
	var w warnings
	w.vips(f, n)
	w.routes(f, n)
	w.forwarding(f, n)
	w.returnPath(f, n)
	w.reversePath(f, n)
	if f.ConntrackMax > 0 && f.ConntrackCount*100 > conntrackAlarm*f.ConntrackMax {
		w.add("connection tracking holds %d of %d entries (%d %%): when it is full, new connections are dropped; raise net.netfilter.nf_conntrack_max",
			f.ConntrackCount, f.ConntrackMax, f.ConntrackCount*100/f.ConntrackMax)
	}
	// ip_vs_in in net/netfilter/ipvs/ip_vs_core.c.
	if f.ReuseSticks && len(n.Masq)+len(n.Direct)+len(n.Tunnel) > 0 {
		w.add("net.ipv4.vs.conn_reuse_mode is 0, and expire_nodest_conn too: a client that uses a source port again reaches its real server even at weight 0; set either to 1 under sysctls")
	}
	return w
}

type warnings []string

func (w *warnings) add(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

// vips warns of addresses that do not bring packets to IPVS.
func (w *warnings) vips(f Facts, n Needs) {
	if n.VIPInterface != "" {
		switch dev, ok := f.Interfaces[n.VIPInterface]; {
		case !ok:
			w.add("vip_interface %s does not exist", n.VIPInterface)
		case !dev.Up:
			w.add("vip_interface %s is down: v6 addresses on it do not work; run ip link set %s up", dev.Name, dev.Name)
		}
		return
	}
	var absent []netip.Addr
	for _, vip := range n.VIPs {
		if n.Forwarded {
			break
		}
		if r, ok := f.Routes[vip]; ok && !r.Local {
			absent = append(absent, vip)
		}
	}
	if len(absent) > 0 {
		w.add("virtual service address %s is not local to this host: packets to it pass by; set vip_interface, or add it to an interface", list(absent))
	}
}

// routes warns of real servers that cannot be reached by their forwarding
// method.
func (w *warnings) routes(f Facts, n Needs) {
	var lost groups[string]
	for _, rs := range slices.Concat(n.Masq, n.Direct, n.Tunnel) {
		if err := f.Routes[rs].Err; err != nil {
			lost.add(err.Error(), rs)
		}
	}
	for err, rs := range lost.sorted() {
		w.add("no route to real server %s: %s", list(rs), err)
	}
	if !slices.ContainsFunc(n.VIPs, netip.Addr.IsLoopback) { // else it may be for this host alone
		inner := slices.DeleteFunc(slices.Clone(n.Masq), func(a netip.Addr) bool { return !a.IsLoopback() })
		if len(inner) > 0 {
			w.add("real server %s (masq) is a loopback address: packets from other hosts to it are dropped; use an address of an interface", list(inner))
		}
	}
	var far groups[netip.Addr]
	for _, rs := range n.Direct {
		if r := f.Routes[rs]; r.Gateway.IsValid() {
			far.add(r.Gateway, rs)
		}
	}
	for gateway, rs := range far.sorted() {
		w.add("real server %s (route) is behind the gateway %v: direct routing reaches only servers on the same link; use tunnel", list(rs), gateway)
	}
}

// forwarding warns where the host would not pass on the replies of masqueraded
// real servers.
func (w *warnings) forwarding(f Facts, n Needs) {
	var off groups[string]
	var off6 []netip.Addr
	for _, rs := range n.Masq {
		r := f.Routes[rs]
		switch {
		case r.Local || r.Err != nil:
		case rs.Is4() && f.Interfaces[r.Interface].Forward4 == Off:
			off.add(r.Interface, rs)
		case rs.Is6() && f.Forward6 == Off:
			off6 = append(off6, rs)
		}
	}
	for dev, rs := range off.sorted() {
		w.add("forwarding is off on %s: the replies of real server %s (masq) are dropped; set net.ipv4.ip_forward=1", dev, list(rs))
	}
	if len(off6) > 0 {
		w.add("v6 forwarding is off: the replies of real server %s (masq) are dropped; set net.ipv6.conf.all.forwarding=1", list(off6))
	}
}

// returnPath warns of masqueraded real servers whose replies may bypass this
// host, in which case the client never sees its connection established.
func (w *warnings) returnPath(f Facts, n Needs) {
	type shared struct {
		network netip.Prefix
		with    netip.Addr
	}
	byShared := func(a, b shared) int {
		if c := a.network.Compare(b.network); c != 0 {
			return c
		}
		return a.with.Compare(b.with)
	}
	var withVIP, withGateway groups[shared]
	var behind groups[netip.Addr]
	for _, rs := range n.Masq {
		r := f.Routes[rs]
		if r.Local || r.Err != nil {
			continue
		}
		if r.Gateway.IsValid() {
			behind.add(r.Gateway, rs)
			continue
		}
		for _, p := range f.Interfaces[r.Interface].Prefixes {
			if !p.Contains(rs) {
				continue
			}
			network := p.Masked()
			for _, vip := range n.VIPs {
				if network.Contains(vip) && vip != rs {
					withVIP.add(shared{network, vip}, rs)
				}
			}
			for _, d := range f.Defaults {
				if d.Interface == r.Interface && d.Gateway.IsValid() && network.Contains(d.Gateway) {
					withGateway.add(shared{network, d.Gateway}, rs)
				}
			}
		}
	}
	for s, rs := range withVIP.sortedBy(byShared) {
		w.add("real server %s (masq) is in the network %v of the virtual service address %v: it answers clients in that network past this host, and their connections fail; use route, or another network",
			list(rs), s.network, s.with)
	}
	for s, rs := range withGateway.sortedBy(byShared) {
		w.add("real server %s (masq) is in the network %v of the default gateway %v: its replies come back only if its own gateway is this host", list(rs), s.network, s.with)
	}
	for gateway, rs := range behind.sorted() {
		w.add("real server %s (masq) is behind the gateway %v: its replies must be routed back through this host", list(rs), gateway)
	}
}

// reversePath warns of strict reverse path filters where they may meet clients
// whose route back is another: on interfaces without a default route that no
// real server is on.
func (w *warnings) reversePath(f Facts, n Needs) {
	if !slices.ContainsFunc(n.VIPs, netip.Addr.Is4) {
		return
	}
	innocent := make(map[string]bool)
	other := false
	for _, d := range f.Defaults {
		if d.Interface != "" {
			innocent[d.Interface] = true
			other = true
		}
	}
	if !other {
		return // Without a default route, every client has one of its own.
	}
	for _, rs := range slices.Concat(n.Masq, n.Direct, n.Tunnel) {
		innocent[f.Routes[rs].Interface] = true
	}
	for _, name := range slices.Sorted(maps.Keys(f.Interfaces)) {
		i := f.Interfaces[name]
		has4 := slices.ContainsFunc(i.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() })
		if i.RPFilter == 1 && i.Up && !i.Loopback && has4 && !innocent[name] {
			w.add("rp_filter is strict on %s, which has no default route: requests that arrive there from beyond its own networks are dropped, unless the route back to the client leaves there too; otherwise set net.ipv4.conf.%s.rp_filter=2",
				name, strings.ReplaceAll(name, ".", "/"))
		}
	}
}

// list prints addresses in their order, the first few of many.
func list(addrs []netip.Addr) string {
	const most = 3
	addrs = slices.Clone(addrs)
	slices.SortFunc(addrs, netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	var b strings.Builder
	for i, a := range addrs {
		if i == most && len(addrs) > most+1 {
			fmt.Fprintf(&b, " and %d more", len(addrs)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(a.String())
	}
	return b.String()
}
