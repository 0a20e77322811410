package ipvs

import (
	"cmp"
	"encoding"
	"fmt"
	"net/netip"
	"strconv"
	"time"
)

// Family is an address family, with the kernel's numbers (AF_INET, AF_INET6).
// The zero value is no family and is refused by every write.
type Family uint8

// The address families that IPVS knows.
const (
	IPv4 Family = 2  // AF_INET
	IPv6 Family = 10 // AF_INET6
)

// FamilyOf returns the family of an address; zero for the zero Addr. A
// 4-in-6 mapped address is IPv4.
func FamilyOf(a netip.Addr) Family {
	switch {
	case a.Is4(), a.Is4In6():
		return IPv4
	case a.Is6():
		return IPv6
	default:
		return 0
	}
}

// Protocol is an IP protocol number. The zero value belongs to fwmark services.
type Protocol uint8

// The protocols that IPVS balances.
const (
	TCP  Protocol = 6   // IPPROTO_TCP
	UDP  Protocol = 17  // IPPROTO_UDP
	SCTP Protocol = 132 // IPPROTO_SCTP
)

// ServiceKey identifies a virtual service: (family, protocol, address, port) or
// (family, fwmark). It is comparable. Everything else about a service is an
// attribute that can be edited in place.
type ServiceKey struct {
	// Family is the family of the VIP, or of the packets that carry FWMark.
	Family Family
	// Protocol is zero for a fwmark service.
	Protocol Protocol
	// Address is the VIP and port; the zero AddrPort for a fwmark service.
	// Port 0 means every port and needs persistence to schedule anything.
	Address netip.AddrPort
	// FWMark is the firewall mark, 1 to 2^32-1; zero for an address service.
	FWMark uint32
}

// AddrService returns the key of the service at a VIP and port.
func AddrService(p Protocol, ap netip.AddrPort) ServiceKey {
	ap = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	return ServiceKey{Family: FamilyOf(ap.Addr()), Protocol: p, Address: ap}
}

// MarkService returns the key of a fwmark service.
func MarkService(f Family, mark uint32) ServiceKey {
	return ServiceKey{Family: f, FWMark: mark}
}

// String prints the key as ipvsadm would: "TCP 192.0.2.10:80",
// "TCP [2001:db8::1]:80", "FWM 7" or "FWM 7 IPv6".
func (k ServiceKey) String() string {
	if k.FWMark != 0 {
		s := "FWM " + strconv.FormatUint(uint64(k.FWMark), 10)
		if k.Family == IPv6 {
			s += " IPv6"
		}
		return s
	}
	return k.Protocol.String() + " " + k.Address.String()
}

// Compare orders keys by family, protocol, address, port and mark.
func (k ServiceKey) Compare(o ServiceKey) int {
	return cmp.Or(
		cmp.Compare(k.Family, o.Family),
		cmp.Compare(k.Protocol, o.Protocol),
		k.Address.Compare(o.Address),
		cmp.Compare(k.FWMark, o.FWMark),
	)
}

// Scheduler is the name of a scheduler as the kernel knows it, at most 15 bytes
// (IP_VS_SCHEDNAME_MAXLEN): rr, wrr, lc, wlc, lblc, lblcr, dh, sh, mh, sed, nq,
// fo, ovf, twos. Which of them exist is known only by asking the kernel.
type Scheduler string

// ServiceFlags are the flags of a virtual service that a caller may set
// (IP_VS_SVC_F_* in include/uapi/linux/ip_vs.h). The kernel's own HASHED bit is
// never in a value of this type.
type ServiceFlags uint32

// Flags of a virtual service.
const (
	FlagPersistent ServiceFlags = 0x1  // IP_VS_SVC_F_PERSISTENT
	FlagOnePacket  ServiceFlags = 0x4  // IP_VS_SVC_F_ONEPACKET
	FlagSched1     ServiceFlags = 0x8  // IP_VS_SVC_F_SCHED1
	FlagSched2     ServiceFlags = 0x10 // IP_VS_SVC_F_SCHED2
	FlagSched3     ServiceFlags = 0x20 // IP_VS_SVC_F_SCHED3

	FlagSHFallback = FlagSched1 // IP_VS_SVC_F_SCHED_SH_FALLBACK
	FlagSHPort     = FlagSched2 // IP_VS_SVC_F_SCHED_SH_PORT
	FlagMHFallback = FlagSched1 // IP_VS_SVC_F_SCHED_MH_FALLBACK
	FlagMHPort     = FlagSched2 // IP_VS_SVC_F_SCHED_MH_PORT
)

// Persistence is the client affinity of a virtual service. It is in force when
// FlagPersistent is set.
type Persistence struct {
	// Timeout is how long a template outlives the last connection; whole
	// seconds, at most 2^31/HZ. Zero with FlagPersistent is legal and useless.
	Timeout time.Duration
	// Netmask groups clients; the zero value groups by whole address.
	Netmask Netmask
	// Engine is the name of a persistence engine ("sip"); empty for none.
	Engine string
}

// Service is the complete configuration of a virtual service. It is
// comparable; compare canonical values (see Canonical).
type Service struct {
	ServiceKey
	// Scheduler decides where a new connection goes; must not be empty.
	Scheduler Scheduler
	// Flags are the service's flags.
	Flags ServiceFlags
	// Persistence is the client affinity, sent whether in force or not.
	Persistence Persistence
}

// Canonical returns s with spelled-out defaults taken back to zero values, so
// that two services that the kernel cannot tell apart are equal with ==.
func (s Service) Canonical() Service {
	s.Persistence.Netmask = s.Persistence.Netmask.canonical(s.Family)
	if s.Flags&FlagPersistent == 0 {
		s.Persistence.Timeout = 0
		s.Persistence.Netmask = Netmask{}
	}
	return s
}

// Netmask is the granularity of persistence: any 32-bit mask for IPv4, a prefix
// length for IPv6. The zero value covers the whole address (255.255.255.255 or
// /128). It is comparable.
type Netmask struct {
	value uint32
	set   bool
}

// NetmaskV4 returns an IPv4 mask. Non-contiguous masks and 0.0.0.0 are legal. It
// panics if a is not an IPv4 address.
func NetmaskV4(a netip.Addr) Netmask {
	b := a.As4()
	return Netmask{uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]), true}
}

// NetmaskV6 returns an IPv6 prefix length; the kernel takes 1 to 128.
func NetmaskV6(prefix uint8) Netmask { return Netmask{uint32(prefix), true} }

// V4 returns the mask as the kernel's 32 bits, most significant byte first.
func (m Netmask) V4() uint32 {
	if !m.set {
		return 0xffffffff
	}
	return m.value
}

// V6 returns the prefix length.
func (m Netmask) V6() uint32 {
	if !m.set {
		return 128
	}
	return m.value
}

// Text prints the mask of a service of the family: "255.255.255.0", or the prefix
// length.
func (m Netmask) Text(f Family) string {
	if f == IPv6 {
		return strconv.FormatUint(uint64(m.V6()), 10)
	}
	v := m.V4()
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}).String()
}

func (m Netmask) canonical(f Family) Netmask {
	if f == IPv4 && m.V4() == 0xffffffff || f == IPv6 && m.V6() == 128 {
		return Netmask{}
	}
	return m
}

// ForwardMethod is how packets reach a real server
// (IP_VS_CONN_F_FWD_MASK in include/uapi/linux/ip_vs.h).
type ForwardMethod uint8

// The forwarding methods.
const (
	Masq   ForwardMethod = 0 // IP_VS_CONN_F_MASQ
	Local  ForwardMethod = 1 // IP_VS_CONN_F_LOCALNODE, set by the kernel
	Tunnel ForwardMethod = 2 // IP_VS_CONN_F_TUNNEL
	Route  ForwardMethod = 3 // IP_VS_CONN_F_DROUTE
	Bypass ForwardMethod = 4 // IP_VS_CONN_F_BYPASS, set by the kernel
)

// TunnelType is the encapsulation of the Tunnel method.
type TunnelType uint8

// The tunnel types. GUE came with Linux 5.3, GRE with 5.4.
const (
	TunnelIPIP TunnelType = 0 // IP_VS_CONN_F_TUNNEL_TYPE_IPIP
	TunnelGUE  TunnelType = 1 // IP_VS_CONN_F_TUNNEL_TYPE_GUE
	TunnelGRE  TunnelType = 2 // IP_VS_CONN_F_TUNNEL_TYPE_GRE
)

// TunnelChecksum is the checksum mode of a GUE or GRE tunnel.
type TunnelChecksum uint16

// The checksum modes.
const (
	ChecksumNone   TunnelChecksum = 0 // IP_VS_TUNNEL_ENCAP_FLAG_NOCSUM
	ChecksumOn     TunnelChecksum = 1 // IP_VS_TUNNEL_ENCAP_FLAG_CSUM
	ChecksumRemote TunnelChecksum = 2 // IP_VS_TUNNEL_ENCAP_FLAG_REMCSUM
)

// TunnelOptions refine the Tunnel method; the zero value is plain ipip.
type TunnelOptions struct {
	// Type is the encapsulation.
	Type TunnelType
	// Port is GUE's UDP destination port; must not be zero for GUE, zero for others.
	Port uint16
	// Checksum is the checksum mode; ChecksumNone for ipip.
	Checksum TunnelChecksum
}

// Destination is the complete configuration of a real server of a service.
// Address is its identity within the service; the rest are attributes. It is
// comparable.
type Destination struct {
	// Address is the real server's address and port. A family other than the
	// service's needs the Tunnel method.
	Address netip.AddrPort
	// Weight is the share of new connections, 0 to 2^31-1 in the kernel, 0 to
	// 65535 in lbd. Zero quiesces: no new connections, old ones live.
	Weight uint32
	// Forward is the forwarding method.
	Forward ForwardMethod
	// Tunnel refines Forward == Tunnel.
	Tunnel TunnelOptions
	// UpperThreshold stops new connections at this many, 0 for no limit.
	UpperThreshold uint32
	// LowerThreshold lets them in again below this many; 0 means three
	// quarters of UpperThreshold.
	LowerThreshold uint32
}

// DestinationKey identifies a real server of a service.
type DestinationKey struct {
	Service ServiceKey
	Address netip.AddrPort
}

// String prints "10.0.0.2:80 of TCP 192.0.2.10:80".
func (k DestinationKey) String() string {
	return fmt.Sprintf("%v of %v", k.Address, k.Service)
}

// Stats are the counters of a service or a real server. Rates are the kernel
// estimator's, a second, and lag up to 2 s.
type Stats struct {
	Connections, PacketsIn, PacketsOut, BytesIn, BytesOut uint64
	// Rates, a second.
	ConnectionRate, PacketRateIn, PacketRateOut, ByteRateIn, ByteRateOut uint64
}

// ServiceStatus is a service as the kernel holds it.
type ServiceStatus struct {
	Service
	Stats Stats
}

// Conns are the connection counts of a real server, live.
type Conns struct {
	// Active counts connections in an active state (for TCP: established and
	// handshakes), Inactive all others, Persistent the templates.
	Active, Inactive, Persistent uint32
}

// DestinationStatus is a real server as the kernel holds it.
type DestinationStatus struct {
	Destination
	Conns Conns
	Stats Stats
}

// TableEntry is a service with its real servers in the scheduler's list order:
// the newest first, which wins ties in lc and wlc.
type TableEntry struct {
	ServiceStatus
	Destinations []DestinationStatus
}

// Timeouts are the global connection timeouts, whole seconds. Zero in
// SetTimeouts keeps the kernel's.
type Timeouts struct {
	TCP, TCPFin, UDP time.Duration
}

// OpKind is what an Op does.
type OpKind uint8

// The kinds of Op.
const (
	OpAddService OpKind = iota + 1
	OpUpdateService
	OpDeleteService
	OpAddDestination
	OpUpdateDestination
	OpDeleteDestination
)

// Op is one write of a batch.
type Op struct {
	Kind OpKind
	// Service is the service written; for a destination only its key is read.
	Service Service
	// Destination is the real server written; for a delete only Address is read.
	Destination Destination
}

var (
	_ encoding.TextMarshaler = Protocol(0)
	_ encoding.TextMarshaler = ForwardMethod(0)
	_ encoding.TextMarshaler = TunnelType(0)
)
