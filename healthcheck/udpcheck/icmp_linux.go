package udpcheck

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// reported adds to err, which a receive has returned, who said so and what, from
// the socket's error queue.
func reported(fd int, err error) error {
	words := err.Error()
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		words = "port unreachable"
	case errors.Is(err, unix.EHOSTUNREACH):
		words = "host unreachable"
	case errors.Is(err, unix.ENETUNREACH):
		words = "network unreachable"
	}
	from := "ICMP"
	oob := make([]byte, 256)
	_, n, _, _, queueErr := unix.Recvmsg(fd, nil, oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if queueErr == nil {
		if offender, ok := offender(oob[:n]); ok {
			from = "ICMP from " + offender.String()
			if offender == local(fd) && errors.Is(err, unix.EHOSTUNREACH) {
				from = "this host (nobody answers for the address on its network)"
			}
		}
	}
	return fmt.Errorf("%s says %s: %w", from, words, err)
}

// offender returns the address that sent the ICMP error, of the control messages
// that come with it (struct sock_extended_err, linux/errqueue.h).
func offender(oob []byte) (netip.Addr, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.Addr{}, false
	}
	// struct sock_extended_err, then a struct sockaddr_in or sockaddr_in6.
	const size, origin = 16, 4
	for _, m := range messages {
		b := m.Data
		v4 := m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_RECVERR
		v6 := m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		if !v4 && !v6 || len(b) < size+2 {
			continue
		}
		if o := b[origin]; o != unix.SO_EE_ORIGIN_ICMP && o != unix.SO_EE_ORIGIN_ICMP6 {
			continue
		}
		sa := b[size:]
		switch family := binary.NativeEndian.Uint16(sa); {
		case family == unix.AF_INET && len(sa) >= 8:
			return netip.AddrFrom4([4]byte(sa[4:8])), true
		case family == unix.AF_INET6 && len(sa) >= 24:
			return netip.AddrFrom16([16]byte(sa[8:24])).Unmap(), true
		}
	}
	return netip.Addr{}, false
}

// local returns the socket's own address.
func local(fd int) netip.Addr {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.Addr{}
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr)
	}
	return netip.Addr{}
}
