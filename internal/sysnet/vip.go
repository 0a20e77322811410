package sysnet

import (
	"encoding/binary"
	"net/netip"
)

// VIP is an address of an interface.
type VIP struct {
	// Prefix is the address with its prefix length; /32 and /128 are what
	// AddVIPs makes.
	Prefix netip.Prefix
	// Own is whether AddVIPs made it, in this or another run of lbd. It needs
	// Linux 5.18 (IFA_PROTO) and is false on older kernels.
	Own bool
}

// From include/uapi/linux/if_addr.h.
const (
	sizeofIfAddrMsg = 8  // struct ifaddrmsg
	ifaAddress      = 1  // IFA_ADDRESS
	ifaLocal        = 2  // IFA_LOCAL
	ifaProto        = 11 // IFA_PROTO, Linux 5.18

	// ownProto marks the addresses that lbd made. The kernel keeps 1 to 3 for
	// itself and gives the other numbers no meaning. "ip address" shows it as
	// "proto 0x6c".
	ownProto = 'l'
)

// parseAddress decodes an RTM_NEWADDR message without its netlink header: struct
// ifaddrmsg and attributes, up to the first that is cut short. It reports false
// when there is no v4 or v6 address in it. The library's own decoder knows no
// IFA_PROTO and reads past a last attribute without padding.
func parseAddress(m []byte) (link int, v VIP, ok bool) {
	if len(m) < sizeofIfAddrMsg {
		return 0, VIP{}, false
	}
	bits := int(m[1])
	link = int(binary.NativeEndian.Uint32(m[4:]))
	// IFA_LOCAL is the address itself where there is a peer; v6 has it only
	// then.
	var local, address netip.Addr
	for b := m[sizeofIfAddrMsg:]; len(b) >= 4; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			break
		}
		value := b[4:size]
		switch binary.NativeEndian.Uint16(b[2:]) {
		case ifaLocal:
			local, _ = netip.AddrFromSlice(value)
		case ifaAddress:
			address, _ = netip.AddrFromSlice(value)
		case ifaProto:
			v.Own = len(value) == 1 && value[0] == ownProto
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	if !local.IsValid() {
		local = address
	}
	v.Prefix = netip.PrefixFrom(local, bits)
	if !v.Prefix.IsValid() {
		return 0, VIP{}, false
	}
	return link, v, true
}
