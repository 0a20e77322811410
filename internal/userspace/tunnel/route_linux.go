package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// From include/uapi/linux/lwtunnel.h.
const (
	encapBPF    = 6 // LWTUNNEL_ENCAP_BPF
	bpfXmit     = 3 // LWT_BPF_XMIT
	bpfProgFD   = 1 // LWT_BPF_PROG_FD
	bpfProgName = 2 // LWT_BPF_PROG_NAME
)

// routeProtocol marks lbd's routes in "ip route": a number without a name.
const routeProtocol = 108

// setRoute adds or replaces the route to an address. It must run in its network
// namespace. The device is not used, since the packet is routed again, but it
// must not be lo: IPv6 makes such routes unreachable.
func setRoute(to netip.Addr, device uint32, program, mtu int) error {
	var prog []byte
	prog = attribute(prog, bpfProgFD, u32(uint32(program)))
	prog = attribute(prog, bpfProgName, []byte("lbd_tunnel\x00"))
	encap := attribute(nil, bpfXmit|unix.NLA_F_NESTED, prog)
	var metrics []byte
	metrics = attribute(metrics, unix.RTAX_LOCK, u32(1<<unix.RTAX_MTU))
	metrics = attribute(metrics, unix.RTAX_MTU, u32(uint32(mtu)))

	b := routeMessage(to)
	b = attribute(b, unix.RTA_OIF, u32(device))
	b = attribute(b, unix.RTA_METRICS, metrics)
	b = attribute(b, unix.RTA_ENCAP_TYPE, u16(encapBPF))
	b = attribute(b, unix.RTA_ENCAP|unix.NLA_F_NESTED, encap)
	if _, err := request(unix.RTM_NEWROUTE, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_REPLACE, b); err != nil {
		return fmt.Errorf("set route to %v: %w", to, err)
	}
	return nil
}

// hasRoute says whether the route to an address is lbd's.
func hasRoute(to netip.Addr) (bool, error) {
	answer, err := lookUp(to, unix.RTM_F_FIB_MATCH)
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ESRCH):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for the route to %v: %w", to, err)
	case len(answer) < unix.SizeofRtMsg:
		return false, errors.New("truncated answer from rtnetlink")
	}
	return int(answer[1]) == to.BitLen() && answer[5] == routeProtocol, nil
}

// lookUp asks for the route that packets to an address take.
func lookUp(to netip.Addr, flags uint32) ([]byte, error) {
	b := routeMessage(to)
	b[4], b[5], b[6], b[7] = 0, 0, 0, 0
	binary.NativeEndian.PutUint32(b[8:], flags)
	return request(unix.RTM_GETROUTE, 0, b)
}

// device returns the index of the device that packets to an address leave by.
func device(to netip.Addr) (uint32, error) {
	answer, err := lookUp(to, 0)
	if err != nil {
		return 0, err
	}
	for b := answer[min(unix.SizeofRtMsg, len(answer)):]; len(b) >= unix.SizeofNlAttr; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofNlAttr || size > len(b) {
			break
		}
		if binary.NativeEndian.Uint16(b[2:]) == unix.RTA_OIF && size == unix.SizeofNlAttr+4 {
			return binary.NativeEndian.Uint32(b[unix.SizeofNlAttr:]), nil
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return 0, errors.New("the route has no device")
}

// deleteRoute deletes the route to an address; that there is none is no error.
func deleteRoute(to netip.Addr) error {
	_, err := request(unix.RTM_DELROUTE, unix.NLM_F_ACK, routeMessage(to))
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete route to %v: %w", to, err)
	}
	return nil
}

// routeMessage is struct rtmsg and the destination.
func routeMessage(to netip.Addr) []byte {
	family := byte(unix.AF_INET)
	if to.Is6() {
		family = unix.AF_INET6
	}
	b := []byte{family, byte(to.BitLen()), 0, 0, unix.RT_TABLE_MAIN, routeProtocol, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0}
	if to.Is4() {
		b[6] = unix.RT_SCOPE_LINK
	}
	return attribute(b, unix.RTA_DST, to.AsSlice())
}

// request sends one request to rtnetlink and returns the body of the answer.
func request(kind, flags uint16, body []byte) ([]byte, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	ne := binary.NativeEndian
	b := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(body))
	ne.PutUint32(b, uint32(unix.SizeofNlMsghdr+len(body)))
	ne.PutUint16(b[4:], kind)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST|flags)
	b = append(b, body...)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	// The kernel answers before sendto returns.
	answer := make([]byte, 8<<10)
	n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
	if err != nil {
		return nil, os.NewSyscallError("recvfrom", err)
	}
	if n < unix.SizeofNlMsghdr+4 {
		return nil, errors.New("truncated answer from rtnetlink")
	}
	answer, kind = answer[unix.SizeofNlMsghdr:n], ne.Uint16(answer[4:])
	if kind != unix.NLMSG_ERROR {
		return answer, nil
	}
	if code := int32(ne.Uint32(answer)); code != 0 {
		return nil, unix.Errno(-code)
	}
	return nil, nil
}

// attribute appends a netlink attribute, padded.
func attribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofNlAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, -len(value)&3)...)
}

func u16(v uint16) []byte { return binary.NativeEndian.AppendUint16(nil, v) }
func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
