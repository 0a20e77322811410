package ruleset

import (
	"encoding/binary"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/ipvs"
)

// exprs is a part of a rule: a condition or a statement.
type exprs []expr.Any

// Registers. A number below 8 names 16 bytes, one from 8 on 4 bytes of them:
// register 1 is 8 to 11. Values longer than 4 bytes start at a 16-byte one.
const (
	regVerdict = unix.NFT_REG_VERDICT
	reg1       = unix.NFT_REG_1
	reg32      = unix.NFT_REG32_00 // the first 4 bytes of reg1
)

// Offsets and values in transport headers.
const (
	offDPort    = 2
	offTCPFlags = 13
	offSCTPType = 12 // of the first chunk, after the common header

	tcpFIN, tcpSYN, tcpRST, tcpPSH, tcpACK = 0x01, 0x02, 0x04, 0x08, 0x10

	sctpInit = 1
)

// Bits of "ct status": enum ip_conntrack_status in
// include/uapi/linux/netfilter/nf_conntrack_common.h.
const (
	ctAssured   = 1 << 2 // IPS_ASSURED
	ctConfirmed = 1 << 3 // IPS_CONFIRMED
)

// Bits of "ct event": enum ip_conntrack_events, same header.
const (
	eventNew     = 1 << 0 // IPCT_NEW
	eventDestroy = 1 << 2 // IPCT_DESTROY
	eventProto   = 1 << 5 // IPCT_PROTOINFO
	eventMark    = 1 << 7 // IPCT_MARK
)

// u32 is a value in the host's byte order, as marks, states and sizes are.
func u32(v uint32) []byte { return binaryutil.NativeEndian.PutUint32(v) }

// be32 is a value in network order, as keys of intervals must be.
func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

func meta(key expr.MetaKey, reg uint32) expr.Any { return &expr.Meta{Key: key, Register: reg} }

func setMeta(key expr.MetaKey, reg uint32) expr.Any {
	return &expr.Meta{Key: key, Register: reg, SourceRegister: true}
}

func ct(key expr.CtKey, reg uint32) expr.Any { return &expr.Ct{Key: key, Register: reg} }

func setCT(key expr.CtKey, reg uint32) expr.Any {
	return &expr.Ct{Key: key, Register: reg, SourceRegister: true}
}

// bitwise is reg = reg & mask ^ xor.
func bitwise(reg, mask, xor uint32) expr.Any {
	return &expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: 4, Mask: u32(mask), Xor: u32(xor)}
}

func imm(reg uint32, data []byte) expr.Any { return &expr.Immediate{Register: reg, Data: data} }

func holds(op expr.CmpOp, reg uint32, data []byte) expr.Any {
	return &expr.Cmp{Op: op, Register: reg, Data: data}
}

// transport loads bytes of the transport header.
func transport(reg, offset, length uint32) expr.Any {
	return &expr.Payload{Base: expr.PayloadBaseTransportHeader, DestRegister: reg, Offset: offset, Len: length}
}

// markIs is "meta mark & mask == value".
func markIs(mask, value uint32) exprs {
	return exprs{meta(expr.MetaKeyMARK, reg1), bitwise(reg1, mask, 0), holds(expr.CmpOpEq, reg1, u32(value))}
}

// markHas is "meta mark & mask != 0".
func markHas(mask uint32) exprs {
	return exprs{meta(expr.MetaKeyMARK, reg1), bitwise(reg1, mask, 0), holds(expr.CmpOpNeq, reg1, u32(0))}
}

// ctIs is "ct key & mask == value".
func ctIs(key expr.CtKey, mask, value uint32) exprs {
	return exprs{ct(key, reg1), bitwise(reg1, mask, 0), holds(expr.CmpOpEq, reg1, u32(value))}
}

// ctHas is "ct key & mask != 0".
func ctHas(key expr.CtKey, mask uint32) exprs {
	return exprs{ct(key, reg1), bitwise(reg1, mask, 0), holds(expr.CmpOpNeq, reg1, u32(0))}
}

// orCTMark is "ct mark set ct mark & keep | bits"; bits are not in keep.
func orCTMark(keep, bits uint32) exprs {
	return exprs{ct(expr.CtKeyMARK, reg1), bitwise(reg1, keep&^bits, bits), setCT(expr.CtKeyMARK, reg1)}
}

// original and reply are "ct direction".
func original() exprs {
	return exprs{ct(expr.CtKeyDIRECTION, reg1), holds(expr.CmpOpEq, reg1, []byte{0})}
}
func reply() exprs { return exprs{ct(expr.CtKeyDIRECTION, reg1), holds(expr.CmpOpEq, reg1, []byte{1})} }

// protocol is "meta l4proto p".
func protocol(p uint8) exprs {
	return exprs{meta(expr.MetaKeyL4PROTO, reg1), holds(expr.CmpOpEq, reg1, []byte{p})}
}

// notTCP is "meta l4proto != tcp".
func notTCP() exprs {
	return exprs{meta(expr.MetaKeyL4PROTO, reg1), holds(expr.CmpOpNeq, reg1, []byte{protoTCP})}
}

// tcpFlags is "tcp flags & mask op value".
func tcpFlags(mask uint8, op expr.CmpOp, value uint8) exprs {
	return exprs{
		transport(reg1, offTCPFlags, 1),
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		holds(op, reg1, []byte{value}),
	}
}

// tcpFlagsFast is the same in the sizes for which the kernel has shortcuts; the nft
// command prints it as bits of the transport header.
func tcpFlagsFast(mask uint8, op expr.CmpOp, value uint8) exprs {
	const word = 12 // the 4 bytes that the flags are in
	return exprs{
		transport(reg1, word, 4),
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 4, Mask: []byte{0, mask, 0, 0}, Xor: make([]byte, 4)},
		holds(op, reg1, []byte{0, value, 0, 0}),
	}
}

// in is "… @set" for the key that begins in reg1.
func in(set string) exprs { return exprs{&expr.Lookup{SourceRegister: reg1, SetName: set}} }

// through is "… map @set": the value replaces the key in reg1.
func through(set string) exprs {
	return exprs{&expr.Lookup{SourceRegister: reg1, DestRegister: reg1, IsDestRegSet: true, SetName: set}}
}

// vmap is "… vmap @set" for the key that begins in reg1.
func vmap(set string) exprs {
	return exprs{&expr.Lookup{SourceRegister: reg1, DestRegister: regVerdict, IsDestRegSet: true, SetName: set}}
}

func verdict(kind expr.VerdictKind) exprs { return exprs{&expr.Verdict{Kind: kind}} }

func jump(chain string) exprs {
	return exprs{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}

func goTo(chain string) exprs {
	return exprs{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

// rule puts a rule together from its parts.
func rule(parts ...exprs) exprs {
	var r exprs
	for _, p := range parts {
		r = append(r, p...)
	}
	return r
}

// version is what differs between the two IP versions.
type version struct {
	family nftables.TableFamily
	// saddr and daddr are the offsets of the addresses, size is their length.
	saddr, daddr, size uint32
	// after is the register that follows an address in reg1.
	after uint32
	addr  nftables.SetDatatype
	// unreachable is the code of ICMP's "port unreachable".
	unreachable uint8
}

func versionOf(f ipvs.Family) version {
	if f == ipvs.IPv6 {
		return version{family: nftables.TableFamilyIPv6, saddr: 8, daddr: 24, size: 16, after: reg32 + 4, addr: nftables.TypeIP6Addr,
			unreachable: 4} // ICMPV6_PORT_UNREACH
	}
	return version{family: nftables.TableFamilyIPv4, saddr: 12, daddr: 16, size: 4, after: reg32 + 1, addr: nftables.TypeIPAddr,
		unreachable: 3} // ICMP_PORT_UNREACH
}

// network loads an address of the packet.
func (v *version) network(reg, offset uint32) expr.Any {
	return &expr.Payload{Base: expr.PayloadBaseNetworkHeader, DestRegister: reg, Offset: offset, Len: v.size}
}

// service loads "ip daddr . meta l4proto . th dport".
func (v *version) service() exprs {
	return append(v.portless(), transport(v.after+1, offDPort, 2))
}

// portless loads "ip daddr . meta l4proto".
func (v *version) portless() exprs {
	return exprs{v.network(reg1, v.daddr), meta(expr.MetaKeyL4PROTO, v.after)}
}

// source loads "ip saddr . th sport".
func (v *version) source() exprs {
	return exprs{v.network(reg1, v.saddr), transport(v.after, 0, 2)}
}

// reject is "reject with icmp port-unreachable".
func (v *version) reject() expr.Any {
	return &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: v.unreachable}
}
