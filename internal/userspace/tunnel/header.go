package tunnel

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Overhead is what the outer header adds to a packet.
const (
	overhead4 = 20
	overhead6 = 40
)

// What the map holds for a mark: the outer header, but for its length and
// checksum; how long it is; and whether it is around IPv4.
//
// All headers say that they are around IPv6, and the program puts that right
// afterwards: the kernel's bpf_lwt_push_encap does not take packets of many
// segments with IPPROTO_IPIP, as it mistakes that for IPPROTO_IP
// (handle_gso_encap in net/core/lwt_bpf.c, seen in 6.18).
const (
	headerSize = 40
	offSize    = headerSize
	offFour    = headerSize + 4
	valueSize  = headerSize + 8
)

const hopLimit = 64

// header writes the outer header from src to dst, around packets of the family of
// inner.
func header(src, dst netip.Addr, inner6 bool) [valueSize]byte {
	var b [valueSize]byte
	const protocol = unix.IPPROTO_IPV6
	if !inner6 {
		binary.NativeEndian.PutUint32(b[offFour:], 1)
	}
	if dst.Is4() {
		b[0] = 4<<4 | overhead4/4
		// Don't fragment: the client is told of the size that fits.
		binary.BigEndian.PutUint16(b[6:], 1<<14)
		b[8], b[9] = hopLimit, protocol
		copy(b[12:], src.AsSlice())
		copy(b[16:], dst.AsSlice())
		binary.NativeEndian.PutUint32(b[offSize:], overhead4)
		return b
	}
	b[0] = 6 << 4
	b[6], b[7] = protocol, hopLimit
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
	binary.NativeEndian.PutUint32(b[offSize:], overhead6)
	return b
}
