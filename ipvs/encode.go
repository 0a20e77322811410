package ipvs

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// The encoder appends to one reused buffer: a message is begun, given its
// attributes and ended, which fills in the lengths. Nothing is allocated once
// the buffer has grown to its working size.

// beginMessage appends the netlink and the generic netlink header.
func beginMessage(b []byte, family uint16, flags uint16, seq uint32, cmd uint8) []byte {
	b = binary.NativeEndian.AppendUint32(b, 0) // length, by endMessage
	b = binary.NativeEndian.AppendUint16(b, family)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0) // port id: the kernel knows it
	return append(b, cmd, familyVersion, 0, 0)
}

// appendNoop appends a message that asks the kernel for nothing.
func appendNoop(b []byte, flags uint16, seq uint32) []byte {
	start := len(b)
	b = beginMessage(b, nlmsgNoop, flags, seq, 0)[:start+nlmsgHeaderLen]
	endMessage(b, start)
	return b
}

// endMessage fills in the length of the message that starts at start. Every
// attribute is padded, so the end is aligned.
func endMessage(b []byte, start int) {
	binary.NativeEndian.PutUint32(b[start:], uint32(len(b)-start))
}

// beginNested appends the header of a nested attribute.
func beginNested(b []byte, typ uint16) []byte {
	b = binary.NativeEndian.AppendUint16(b, 0)
	return binary.NativeEndian.AppendUint16(b, typ)
}

// endNested fills in the length of the nested attribute that starts at start.
func endNested(b []byte, start int) {
	binary.NativeEndian.PutUint16(b[start:], uint16(len(b)-start))
}

func appendHeader(b []byte, typ uint16, size int) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHeaderLen+size))
	return binary.NativeEndian.AppendUint16(b, typ)
}

func appendU8(b []byte, typ uint16, v uint8) []byte {
	return append(appendHeader(b, typ, 1), v, 0, 0, 0)
}

func appendU16(b []byte, typ uint16, v uint16) []byte {
	b = binary.NativeEndian.AppendUint16(appendHeader(b, typ, 2), v)
	return append(b, 0, 0)
}

func appendU32(b []byte, typ uint16, v uint32) []byte {
	return binary.NativeEndian.AppendUint32(appendHeader(b, typ, 4), v)
}

// appendPort appends a 16-bit number in network order.
func appendPort(b []byte, typ uint16, port uint16) []byte {
	b = binary.BigEndian.AppendUint16(appendHeader(b, typ, 2), port)
	return append(b, 0, 0)
}

// appendString appends text with its final zero byte.
func appendString(b []byte, typ uint16, s string) []byte {
	b = appendHeader(b, typ, len(s)+1)
	b = append(b, s...)
	b = append(b, 0)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// appendAddr appends union nf_inet_addr: 16 bytes for both families.
func appendAddr(b []byte, typ uint16, a netip.Addr) []byte {
	b = appendHeader(b, typ, 16)
	if a.Is4() {
		v4 := a.As4()
		b = append(b, v4[:]...)
		return append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	v6 := a.As16()
	return append(b, v6[:]...)
}

// appendServiceKey appends what identifies a service, without the nest.
func appendServiceKey(b []byte, k ServiceKey) []byte {
	b = appendU16(b, svcAF, uint16(k.Family))
	if k.FWMark != 0 {
		return appendU32(b, svcFWMark, k.FWMark)
	}
	b = appendU16(b, svcProtocol, uint16(k.Protocol))
	b = appendAddr(b, svcAddr, k.Address.Addr())
	return appendPort(b, svcPort, k.Address.Port())
}

// appendServiceKeyNest appends a service that is only named.
func appendServiceKeyNest(b []byte, k ServiceKey) []byte {
	start := len(b)
	b = appendServiceKey(beginNested(b, attrService), k)
	endNested(b, start)
	return b
}

// appendService appends a service whole, as NEW_SERVICE and SET_SERVICE need it.
func appendService(b []byte, s *Service) []byte {
	start := len(b)
	b = appendServiceKey(beginNested(b, attrService), s.ServiceKey)
	b = appendString(b, svcSchedName, string(s.Scheduler))
	if s.Persistence.Engine != "" {
		b = appendString(b, svcPEName, s.Persistence.Engine)
	}
	b = appendHeader(b, svcFlags, 8)
	b = binary.NativeEndian.AppendUint32(b, uint32(s.Flags))
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // mask: replace them all
	b = appendU32(b, svcTimeout, uint32(s.Persistence.Timeout/time.Second))
	b = appendNetmask(b, s.Family, s.Persistence.Netmask)
	endNested(b, start)
	return b
}

// appendNetmask appends a mask in network order for IPv4, a prefix length in
// native order for IPv6. The kernel refuses an IPv6 service without one even
// where it is not persistent.
func appendNetmask(b []byte, f Family, m Netmask) []byte {
	if f == IPv6 {
		return appendU32(b, svcNetmask, m.V6())
	}
	return binary.BigEndian.AppendUint32(appendHeader(b, svcNetmask, 4), m.V4())
}

// appendDestKey appends what identifies a real server, without the nest. The
// family is always sent: without it the kernel takes the service's.
func appendDestKey(b []byte, ap netip.AddrPort) []byte {
	b = appendAddr(b, destAddr, ap.Addr())
	b = appendPort(b, destPort, ap.Port())
	return appendU16(b, destAddrFamily, uint16(rawFamily(ap.Addr())))
}

// appendDestKeyNest appends a real server that is only named.
func appendDestKeyNest(b []byte, ap netip.AddrPort) []byte {
	start := len(b)
	b = appendDestKey(beginNested(b, attrDest), ap)
	endNested(b, start)
	return b
}

// appendDest appends a real server whole, as NEW_DEST and SET_DEST need it. The
// tunnel attributes are sent for other methods too: SET_DEST resets those that
// are left out, and a kernel that does not know them skips them.
func appendDest(b []byte, d *Destination) []byte {
	start := len(b)
	b = appendDestKey(beginNested(b, attrDest), d.Address)
	b = appendU32(b, destFwdMethod, uint32(d.Forward))
	b = appendU32(b, destWeight, d.Weight)
	b = appendU8(b, destTunType, uint8(d.Tunnel.Type))
	b = appendPort(b, destTunPort, d.Tunnel.Port)
	b = appendU16(b, destTunFlags, uint16(d.Tunnel.Checksum))
	b = appendU32(b, destUThresh, d.UpperThreshold)
	b = appendU32(b, destLThresh, d.LowerThreshold)
	endNested(b, start)
	return b
}

// command returns the command of an operation; zero for an unknown kind.
func (k OpKind) command() uint8 {
	switch k {
	case OpAddService:
		return cmdNewService
	case OpUpdateService:
		return cmdSetService
	case OpDeleteService:
		return cmdDelService
	case OpAddDestination:
		return cmdNewDest
	case OpUpdateDestination:
		return cmdSetDest
	case OpDeleteDestination:
		return cmdDelDest
	}
	return 0
}

// appendOp appends the request of one operation.
func appendOp(b []byte, family, flags uint16, seq uint32, op *Op) []byte {
	start := len(b)
	b = beginMessage(b, family, flagRequest|flags, seq, op.Kind.command())
	switch op.Kind {
	case OpAddService, OpUpdateService:
		b = appendService(b, &op.Service)
	default:
		b = appendServiceKeyNest(b, op.Service.ServiceKey)
	}
	switch op.Kind {
	case OpAddDestination, OpUpdateDestination:
		b = appendDest(b, &op.Destination)
	case OpDeleteDestination:
		b = appendDestKeyNest(b, op.Destination.Address)
	}
	endMessage(b, start)
	return b
}

// setFlags replaces the flags of a message.
func setFlags(b []byte, flags uint16) { binary.NativeEndian.PutUint16(b[6:], flags) }
