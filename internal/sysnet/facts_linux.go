package sysnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxRoutes bounds the search for default routes, which the kernel lists first:
// a router may have a million others.
const maxRoutes = 100_000

// ReadFacts reads what the namespace's network is like, for Warnings with the
// same needs. It changes nothing. What this kernel does not have stays zero; an
// error means that the kernel would not answer.
func (n *Namespace) ReadFacts(needs Needs) (Facts, error) {
	f := Facts{Routes: make(map[netip.Addr]Route)}
	err := n.Do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		names, err := f.readInterfaces(h)
		if err != nil {
			return err
		}
		if err := f.readDefaults(h, names); err != nil {
			return err
		}
		for _, a := range slices.Concat(needs.VIPs, needs.Masq, needs.Direct, needs.Tunnel) {
			if _, ok := f.Routes[a]; !ok && a.IsValid() {
				f.Routes[a] = readRoute(h, a, names)
			}
		}
		f.Forward6 = readSwitch("net.ipv6.conf.all.forwarding")
		f.ConntrackCount, _ = readNumber("net.netfilter.nf_conntrack_count")
		f.ConntrackMax, _ = readNumber("net.netfilter.nf_conntrack_max")
		reuse, known := readNumber("net.ipv4.vs.conn_reuse_mode")
		expire, _ := readNumber("net.ipv4.vs.expire_nodest_conn")
		f.ReuseSticks = known && reuse == 0 && expire == 0
		return nil
	})
	if err != nil {
		return Facts{}, fmt.Errorf("read facts of the network: %w", err)
	}
	return f, nil
}

// readInterfaces also returns the names by index.
func (f *Facts) readInterfaces(h *netlink.Handle) (map[int]string, error) {
	links, err := retryDump(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	addrs, err := listAddresses()
	if err != nil {
		return nil, err
	}
	all, _ := readNumber("net.ipv4.conf.all.rp_filter")
	names := make(map[int]string, len(links))
	f.Interfaces = make(map[string]Interface, len(links))
	for _, l := range links {
		a := l.Attrs()
		names[a.Index] = a.Name
		conf := "net.ipv4.conf." + strings.ReplaceAll(a.Name, ".", "/")
		own, _ := readNumber(conf + ".rp_filter")
		i := Interface{
			Name:     a.Name,
			Up:       a.Flags&net.FlagUp != 0,
			Loopback: a.Flags&net.FlagLoopback != 0,
			Forward4: readSwitch(conf + ".forwarding"),
			RPFilter: max(all, own),
		}
		for _, v := range addrs[a.Index] {
			i.Prefixes = append(i.Prefixes, v.Prefix)
		}
		f.Interfaces[a.Name] = i
	}
	return names, nil
}

// readDefaults finds the default routes.
func (f *Facts) readDefaults(h *netlink.Handle, names map[int]string) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		found, err := retryDump(func() (found []Route, err error) {
			seen := 0
			err = h.RouteListFilteredIter(family, &netlink.Route{}, 0, func(r netlink.Route) bool {
				seen++
				if r.Dst == nil || r.Dst.IP.IsUnspecified() && ones(r.Dst.Mask) == 0 {
					found = append(found, hops(r, names)...)
				}
				return seen < maxRoutes
			})
			return found, err
		})
		// A kernel without v6 has no such table.
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("list routes: %w", err)
		}
		f.Defaults = append(f.Defaults, found...)
	}
	return nil
}

func ones(m net.IPMask) int {
	n, _ := m.Size()
	return n
}

// hops returns each way that a route goes.
func hops(r netlink.Route, names map[int]string) []Route {
	if len(r.MultiPath) == 0 {
		return []Route{{Interface: names[r.LinkIndex], Gateway: gateway(r.Gw, r.Via)}}
	}
	var out []Route
	for _, hop := range r.MultiPath {
		out = append(out, Route{Interface: names[hop.LinkIndex], Gateway: gateway(hop.Gw, hop.Via)})
	}
	return out
}

// gateway returns a gateway of the route's own family or of the other.
func gateway(ip net.IP, via netlink.Destination) netip.Addr {
	if v, ok := via.(*netlink.Via); ok && len(ip) == 0 {
		ip = v.Addr
	}
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// readRoute asks the kernel for the way to a.
func readRoute(h *netlink.Handle, a netip.Addr, names map[int]string) Route {
	routes, err := h.RouteGet(a.Unmap().AsSlice())
	if err == nil && len(routes) == 0 {
		err = unix.ENETUNREACH
	}
	if err != nil {
		return Route{Err: err}
	}
	r := hops(routes[0], names)[0]
	r.Local = routes[0].Type == unix.RTN_LOCAL
	return r
}

// readSwitch reads a setting in the thread's namespace.
func readSwitch(name string) Switch {
	switch n, ok := readNumber(name); {
	case !ok:
		return Unknown
	case n == 0:
		return Off
	}
	return On
}

// readNumber reads a setting in the thread's namespace, and reports whether
// there is one.
func readNumber(name string) (int, bool) {
	path, err := sysctlPath(name)
	if err != nil {
		return 0, false
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil
}
