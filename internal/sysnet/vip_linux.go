package sysnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// AddVIPs gives addresses, as /32 or /128, to an interface and returns those
// that it added: an address that the interface has already, with any prefix
// length, is someone else's. Addresses that cannot be added do not keep the
// others from it; the error names each. errors.Is(err, unix.ENODEV) tells that
// there is no such interface.
//
// A v6 address is usable at once, without duplicate address detection, and
// deprecated: it answers, but the host does not choose it as the source of
// connections of its own, such as probes.
func (n *Namespace) AddVIPs(dev string, vips []netip.Addr) (added []netip.Addr, err error) {
	err = n.Do(func() error {
		link, err := linkByName(dev)
		if err != nil {
			return err
		}
		have, err := listVIPs(link)
		if err != nil {
			return err
		}
		there := make(map[netip.Addr]bool, len(have))
		for _, v := range have {
			there[v.Prefix.Addr()] = true
		}
		var errs []error
		for _, vip := range unmap(vips) {
			if there[vip] {
				continue
			}
			there[vip] = true
			err := changeVIP(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, link, vip)
			switch {
			case err == nil:
				added = append(added, vip)
			case errors.Is(err, unix.EEXIST): // since the list was read
			default:
				errs = append(errs, fmt.Errorf("add %v to %s: %w", vip, dev, hint(err)))
			}
		}
		return errors.Join(errs...)
	})
	return added, err
}

// RemoveVIPs takes addresses, as /32 or /128, from an interface and returns
// those that it took. An address that is not there is no error, nor is an
// interface that is not there. Give it what AddVIPs returned.
func (n *Namespace) RemoveVIPs(dev string, vips []netip.Addr) (removed []netip.Addr, err error) {
	err = n.Do(func() error {
		link, err := linkByName(dev)
		if errors.Is(err, unix.ENODEV) {
			return nil
		}
		if err != nil {
			return err
		}
		var errs []error
		for _, vip := range unmap(vips) {
			err := changeVIP(unix.RTM_DELADDR, 0, link, vip)
			switch {
			case err == nil:
				removed = append(removed, vip)
			case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.ENODEV):
			default:
				errs = append(errs, fmt.Errorf("take %v from %s: %w", vip, dev, hint(err)))
			}
		}
		return errors.Join(errs...)
	})
	return removed, err
}

// ListVIPs returns the addresses of an interface in the order of their values,
// those included that are not lbd's. errors.Is(err, unix.ENODEV) tells that
// there is no such interface.
func (n *Namespace) ListVIPs(dev string) (vips []VIP, err error) {
	err = n.Do(func() error {
		link, err := linkByName(dev)
		if err != nil {
			return err
		}
		vips, err = listVIPs(link)
		return err
	})
	slices.SortFunc(vips, func(a, b VIP) int { return a.Prefix.Compare(b.Prefix) })
	return vips, err
}

// linkByName returns the index of an interface.
func linkByName(name string) (int, error) {
	link, err := netlink.LinkByName(name)
	if _, ok := errors.AsType[netlink.LinkNotFoundError](err); ok {
		err = unix.ENODEV
	}
	if err != nil {
		return 0, fmt.Errorf("interface %q: %w", name, err)
	}
	return link.Attrs().Index, nil
}

// unmap returns the addresses with v4 in its own form.
func unmap(addrs []netip.Addr) []netip.Addr {
	out := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		out = append(out, a.Unmap().WithZone(""))
	}
	return out
}

// changeVIP adds or deletes an address. The library's own function cannot set
// IFA_PROTO.
func changeVIP(command, flags, link int, vip netip.Addr) error {
	if !vip.IsValid() || vip.IsUnspecified() || vip.IsMulticast() {
		return unix.EINVAL
	}
	req := nl.NewNetlinkRequest(command, flags|unix.NLM_F_ACK)
	msg := nl.NewIfAddrmsg(unix.AF_INET)
	if vip.Is6() {
		msg.Family = unix.AF_INET6
		msg.Flags = unix.IFA_F_NODAD
	}
	msg.Index = uint32(link)
	msg.Prefixlen = uint8(vip.BitLen())
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFA_LOCAL, vip.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, vip.AsSlice()))
	if command == unix.RTM_NEWADDR {
		req.AddData(nl.NewRtAttr(ifaProto, []byte{ownProto}))
		if vip.Is6() {
			life := nl.IfaCacheInfo{IfaCacheinfo: unix.IfaCacheinfo{Prefered: 0, Valid: 1<<32 - 1}}
			req.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, life.Serialize()))
		}
	}
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// listVIPs returns the addresses of the interface with the index.
func listVIPs(link int) ([]VIP, error) {
	all, err := listAddresses()
	return all[link], err
}

// listAddresses returns all addresses of the thread's namespace by the index of
// their interface.
func listAddresses() (map[int][]VIP, error) {
	msgs, err := retryDump(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
		req.AddData(nl.NewIfAddrmsg(unix.AF_UNSPEC))
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	all := make(map[int][]VIP)
	for _, m := range msgs {
		if index, v, ok := parseAddress(m); ok {
			all[index] = append(all[index], v)
		}
	}
	return all, nil
}

// hint adds what a person needs to know of an error.
func hint(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (needs CAP_NET_ADMIN)", err)
	}
	return err
}
