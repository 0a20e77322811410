package flow

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Tuple is the source and destination of a flow's packets in one direction. It
// is comparable and holds no pointer, so that tables of millions of them cost
// the garbage collector nothing. The zero value is no flow.
//
// An IPv4 address is kept as the IPv4-mapped IPv6 address.
type Tuple struct {
	src, dst         [16]byte
	SrcPort, DstPort uint16
	// Protocol is the IP protocol number.
	Protocol uint8
	four     bool
}

// New returns the tuple of a flow. Both addresses are of one family.
func New(protocol uint8, src, dst netip.AddrPort) Tuple {
	return Tuple{
		src: src.Addr().As16(), dst: dst.Addr().As16(),
		SrcPort: src.Port(), DstPort: dst.Port(),
		Protocol: protocol, four: dst.Addr().Unmap().Is4(),
	}
}

// New4 returns the tuple of an IPv4 flow, from addresses in network order.
func New4(protocol uint8, src, dst [4]byte, srcPort, dstPort uint16) Tuple {
	t := Tuple{SrcPort: srcPort, DstPort: dstPort, Protocol: protocol, four: true}
	t.src[10], t.src[11], t.dst[10], t.dst[11] = 0xff, 0xff, 0xff, 0xff
	copy(t.src[12:], src[:])
	copy(t.dst[12:], dst[:])
	return t
}

// New6 returns the tuple of an IPv6 flow, from addresses in network order.
func New6(protocol uint8, src, dst [16]byte, srcPort, dstPort uint16) Tuple {
	return Tuple{src: src, dst: dst, SrcPort: srcPort, DstPort: dstPort, Protocol: protocol}
}

// Is4 says whether the flow is IPv4.
func (t *Tuple) Is4() bool { return t.four }

// Src returns the source address, unmapped.
func (t *Tuple) Src() netip.Addr { return t.addr(t.src) }

// Dst returns the destination address, unmapped.
func (t *Tuple) Dst() netip.Addr { return t.addr(t.dst) }

func (t *Tuple) addr(a [16]byte) netip.Addr {
	if t.four {
		return netip.AddrFrom4([4]byte(a[12:]))
	}
	return netip.AddrFrom16(a)
}

// Reverse returns the tuple of the other direction.
func (t *Tuple) Reverse() Tuple {
	return Tuple{src: t.dst, dst: t.src, SrcPort: t.DstPort, DstPort: t.SrcPort, Protocol: t.Protocol, four: t.four}
}

// Hash returns a hash of the tuple mixed with seed. Whoever keeps a table of
// hostile flows gives it a secret seed.
func (t *Tuple) Hash(seed uint64) uint64 {
	h := seed
	for _, v := range [...]uint64{
		binary.LittleEndian.Uint64(t.src[:8]), binary.LittleEndian.Uint64(t.src[8:]),
		binary.LittleEndian.Uint64(t.dst[:8]), binary.LittleEndian.Uint64(t.dst[8:]),
		uint64(t.SrcPort)<<32 | uint64(t.DstPort)<<16 | uint64(t.Protocol),
	} {
		h = mix(h ^ v)
	}
	return h
}

// mix is the finaliser of splitmix64 with the seed's own constant added first
// (Steele, Lea and Flood, "Fast splittable pseudorandom number generators").
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// String prints "6 198.51.100.7:4711 > 192.0.2.10:80".
func (t Tuple) String() string {
	return fmt.Sprintf("%d %v > %v", t.Protocol,
		netip.AddrPortFrom(t.Src(), t.SrcPort), netip.AddrPortFrom(t.Dst(), t.DstPort))
}
