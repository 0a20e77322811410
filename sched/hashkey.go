package sched

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// fold is the number that the kernel's hash schedulers make of an address: an
// IPv4 address is taken as it is, the four words of an IPv6 address are XORed.
func fold(a netip.Addr) uint32 {
	if a.Is4() {
		b := a.As4()
		return binary.BigEndian.Uint32(b[:])
	}
	b := a.As16()
	return binary.BigEndian.Uint32(b[0:]) ^ binary.BigEndian.Uint32(b[4:]) ^
		binary.BigEndian.Uint32(b[8:]) ^ binary.BigEndian.Uint32(b[12:])
}

// hash32 is hash_32 of the kernel (linux/hash.h): the top bits of the product
// with the golden ratio.
func hash32(v uint32, n uint) uint32 { return v * 0x61C88647 >> (32 - n) }

// sipKey is the key of sip13: twice the same number, as mh has it.
type sipKey uint64

// sum32 is hsiphash of the kernel (lib/siphash.c) of the four bytes of v, which
// is SipHash-1-3 cut to 32 bits on 64-bit machines; 32-bit machines use another
// function. Byte order is little endian.
func (k sipKey) sum32(v uint32) uint32 { return sip13(uint64(k), uint64(k), v) }

func sip13(k0, k1 uint64, v uint32) uint32 {
	// The initial state is "somepseudorandomlygeneratedbytes".
	v0, v1 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d
	v2, v3 := k0^0x6c7967656e657261, k1^0x7465646279746573
	round := func() {
		v0 += v1
		v2 += v3
		v1 = bits.RotateLeft64(v1, 13) ^ v0
		v3 = bits.RotateLeft64(v3, 16) ^ v2
		v0 = bits.RotateLeft64(v0, 32) + v3
		v2 += v1
		v3 = bits.RotateLeft64(v3, 21) ^ v0
		v1 = bits.RotateLeft64(v1, 17) ^ v2
		v2 = bits.RotateLeft64(v2, 32)
	}
	last := 4<<56 | uint64(v) // the length, then the bytes that fill no word
	v3 ^= last
	round()
	v0 ^= last
	v2 ^= 0xff
	round()
	round()
	round()
	return uint32(v0 ^ v1 ^ v2 ^ v3)
}

// mix64 spreads every bit of v over all bits (the finaliser of SplitMix64,
// Steele, Lea, Flood 2014).
func mix64(v uint64) uint64 {
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

// addressHash hashes an address with a port; equal on every machine, so that
// several balancers with the same servers choose alike.
func addressHash(a netip.Addr, port uint16) uint64 {
	b := a.As16()
	h := mix64(uint64(port) + 0x9e3779b97f4a7c15)
	h = mix64(h ^ binary.BigEndian.Uint64(b[:8]))
	return mix64(h ^ binary.BigEndian.Uint64(b[8:]))
}
