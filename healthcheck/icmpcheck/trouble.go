package icmpcheck

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/net/ipv6"
)

// The origins of an extended error, SO_EE_ORIGIN_* of
// include/uapi/linux/errqueue.h.
const (
	originLocal = 1
	originICMP  = 2
	originICMP6 = 3
)

// trouble is an ICMP error that quotes a request.
type trouble struct {
	from       netip.Addr // who sent it; invalid where that is unknown
	v6         bool
	kind, code uint8
	errno      syscall.Errno // what the kernel makes of it
}

// Error returns the error's name with its sender: "host unreachable, says
// 192.0.2.1".
func (t *trouble) Error() string {
	s := t.text()
	if t.from.IsValid() {
		s += ", says " + t.from.String()
	}
	return s
}

// Unwrap returns the errno.
func (t *trouble) Unwrap() error { return t.errno }

// tooBig reports whether the packet was too big for a link of IPv6, where no
// router divides packets: the kernel has taken note, and the next one fits.
func (t *trouble) tooBig() bool { return t.v6 && t.kind == uint8(ipv6.ICMPTypePacketTooBig) }

// name is a type and code of an ICMP error.
type name struct {
	v6         bool
	kind, code uint8
}

// Named as in RFC 792, RFC 1122 (section 3.2.2.1), RFC 1812 (section 5.2.7.1) and
// RFC 4443; the numbers are those of IANA.
var texts = map[name]string{
	{false, 3, 0}:  "network unreachable",
	{false, 3, 1}:  "host unreachable",
	{false, 3, 2}:  "protocol unreachable",
	{false, 3, 3}:  "port unreachable",
	{false, 3, 4}:  "fragmentation needed",
	{false, 3, 5}:  "source route failed",
	{false, 3, 6}:  "network unknown",
	{false, 3, 7}:  "host unknown",
	{false, 3, 9}:  "network administratively prohibited",
	{false, 3, 10}: "host administratively prohibited",
	{false, 3, 11}: "network unreachable for this type of service",
	{false, 3, 12}: "host unreachable for this type of service",
	{false, 3, 13}: "administratively prohibited",
	{false, 11, 0}: "time to live exceeded in transit",
	{false, 11, 1}: "time exceeded in reassembly",
	{true, 1, 0}:   "no route to destination",
	{true, 1, 1}:   "administratively prohibited",
	{true, 1, 2}:   "beyond the scope of the source address",
	{true, 1, 3}:   "address unreachable",
	{true, 1, 4}:   "port unreachable",
	{true, 1, 5}:   "source address failed the policy",
	{true, 1, 6}:   "route rejected",
	{true, 2, 0}:   "packet too big",
	{true, 3, 0}:   "hop limit exceeded in transit",
	{true, 3, 1}:   "time exceeded in reassembly",
}

func (t *trouble) text() string {
	if s, ok := texts[name{t.v6, t.kind, t.code}]; ok {
		return s
	}
	return fmt.Sprintf("ICMP error of type %d, code %d", t.kind, t.code)
}

// extended is struct sock_extended_err of include/uapi/linux/errqueue.h.
type extended struct {
	errno              syscall.Errno
	origin, kind, code uint8
	offender           netip.Addr
}

// The lengths of struct sock_extended_err, and of the sockaddr behind it up to
// the address.
const (
	extendedLen  = 16
	sockaddr4Len = 8
	sockaddr6Len = 24
)

// parseExtended reads the data of an IP_RECVERR or IPV6_RECVERR control message.
func parseExtended(b []byte, inet, inet6 uint16) (extended, error) {
	if len(b) < extendedLen {
		return extended{}, fmt.Errorf("extended error of %d bytes", len(b))
	}
	e := extended{
		errno:  syscall.Errno(binary.NativeEndian.Uint32(b)),
		origin: b[4], kind: b[5], code: b[6],
	}
	b = b[extendedLen:]
	if len(b) < 2 {
		return e, nil
	}
	switch f := binary.NativeEndian.Uint16(b); {
	case f == inet && len(b) >= sockaddr4Len:
		e.offender = netip.AddrFrom4([4]byte(b[4:sockaddr4Len]))
	case f == inet6 && len(b) >= sockaddr6Len:
		e.offender = netip.AddrFrom16([16]byte(b[8:sockaddr6Len]))
	}
	return e, nil
}
