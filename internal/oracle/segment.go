package oracle

import (
	"encoding/binary"
	"net/netip"
)

// TCP flags of segments.
const (
	flagFIN = 0x01
	flagSYN = 0x02
	flagACK = 0x10
)

const (
	etherLen = 14
	ipv4Len  = 20
	ipv6Len  = 40
	tcpLen   = 20

	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	protoTCP  = 6
	protoUDP  = 17

	ttl = 64
)

// link is a locally administered Ethernet address with a number.
func link(n uint16) [6]byte { return [6]byte{2, 0, 0, 0, byte(n >> 8), byte(n)} }

// linkBalancer is the balancer's device at the client's end.
const linkBalancer = 0xff01

// flow is a connection of a client, whose segments are forged.
type flow struct {
	src, dst netip.AddrPort
}

// segment appends the frame of a segment without data.
func (f flow) segment(b []byte, flags byte) []byte {
	b = appendIP(b, f.src.Addr(), f.dst.Addr(), protoTCP, tcpLen)
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, f.src.Port())
	b = binary.BigEndian.AppendUint16(b, f.dst.Port())
	b = binary.BigEndian.AppendUint32(b, 1)                  // sequence
	b = binary.BigEndian.AppendUint32(b, uint32(flags>>4&1)) // acknowledgement
	b = append(b, tcpLen/4<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	sum := pseudo(f.src.Addr(), f.dst.Addr(), protoTCP, tcpLen)
	binary.BigEndian.PutUint16(b[at+16:], checksum(b[at:], sum))
	return b
}

// datagram appends the frame of a datagram without data and checksum.
func (f flow) datagram(b []byte) []byte {
	b = appendIP(b, f.src.Addr(), f.dst.Addr(), protoUDP, 8)
	b = binary.BigEndian.AppendUint16(b, f.src.Port())
	b = binary.BigEndian.AppendUint16(b, f.dst.Port())
	return append(b, 0, 8, 0, 0)
}

// appendIP appends an Ethernet header to the balancer, and an IP header.
func appendIP(b []byte, src, dst netip.Addr, proto byte, payload int) []byte {
	to, from := link(linkBalancer), link(linkBalancer+1)
	b = append(append(b, to[:]...), from[:]...)
	if dst.Is6() {
		b = binary.BigEndian.AppendUint16(b, etherIPv6)
		b = append(b, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(payload))
		b = append(b, proto, ttl)
		return append(append(b, src.AsSlice()...), dst.AsSlice()...)
	}
	b = binary.BigEndian.AppendUint16(b, etherIPv4)
	at := len(b)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(ipv4Len+payload))
	b = append(b, 0, 0, 0, 0, ttl, proto, 0, 0)
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	binary.BigEndian.PutUint16(b[at+10:], checksum(b[at:], 0))
	return b
}

// pseudo is the sum over the pseudo header of TCP (RFC 9293, section 3.1).
func pseudo(src, dst netip.Addr, proto byte, length int) uint32 {
	sum := uint32(proto) + uint32(length)
	for _, a := range [][]byte{src.AsSlice(), dst.AsSlice()} {
		for i := 0; i < len(a); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(a[i:]))
		}
	}
	return sum
}

// checksum is the Internet checksum (RFC 1071) of an even number of bytes.
func checksum(b []byte, sum uint32) uint16 {
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
