package ruleset

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Each datagram of a one-packet service is scheduled by itself, so it must not
// belong to a flow. It is not tracked, and rewritten without memory: to the real
// server on its way there, and answers to the address of the service by where
// they come from.

// Offsets of UDP's header.
const (
	offUDPChecksum = 6
	offSPort       = 0
)

// eachRules deliver a datagram of a one-packet service that has a mark.
func (t *table) eachRules() []exprs {
	mark := exprs{meta(expr.MetaKeyMARK, regMark)}
	server := func(set string) exprs {
		return append(mark, bitwise(regMark, t.opts.Mask, 0),
			&expr.Lookup{SourceRegister: regMark, DestRegister: reg1, IsDestRegSet: true, SetName: set})
	}
	return []exprs{
		// dup to meta mark & MASK map @hosts drop
		t.send(expr.MetaKeyMARK),
		// udp checksum 0 ip daddr . udp dport set meta mark & MASK map @servers return
		rule(noChecksum(), server(mapServers), t.rewrite(t.daddr, offDPort, false), verdict(expr.VerdictReturn)),
		// ip daddr . udp dport set meta mark & MASK map @servers return
		rule(server(mapServers), t.rewrite(t.daddr, offDPort, true), verdict(expr.VerdictReturn)),
		// ip daddr set meta mark & MASK map @servers_any return
		rule(server(mapAnyPortServer), exprs{t.setAddress(t.daddr)}, verdict(expr.VerdictReturn)),
		// drop
		verdict(expr.VerdictDrop),
	}
}

// answerRules give an answer the address that its client asked.
func (t *table) answerRules() []exprs {
	service := rule(ctHas(expr.CtKeySTATE, expr.CtStateBitUNTRACKED), protocol(protoUDP))
	return []exprs{
		// ct state untracked udp checksum 0 ip saddr . udp sport set ip saddr . udp sport map @answers_each return
		rule(service, noChecksum(), t.source(), through(mapAnswers), t.rewrite(t.saddr, offSPort, false), verdict(expr.VerdictReturn)),
		// ct state untracked meta l4proto udp ip saddr . udp sport set ip saddr . udp sport map @answers_each
		rule(service, t.source(), through(mapAnswers), t.rewrite(t.saddr, offSPort, true)),
	}
}

// noChecksum matches a datagram without a checksum, which must not get half of
// one.
func noChecksum() exprs {
	return exprs{transport(reg1, offUDPChecksum, 2), holds(expr.CmpOpEq, reg1, []byte{0, 0})}
}

// rewrite writes the address and the port that begin in reg1.
func (t *table) rewrite(addr, port uint32, checksum bool) exprs {
	p := &expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: t.after,
		Base: expr.PayloadBaseTransportHeader, Offset: port, Len: 2}
	if checksum {
		p.CsumType, p.CsumOffset = expr.CsumTypeInet, offUDPChecksum
	}
	return exprs{t.setAddress(addr), p}
}

// setAddress writes the address in reg1, and what of checksums covers it: the
// kernel leaves UDP's alone where there is none.
func (v *version) setAddress(offset uint32) expr.Any {
	const offIPChecksum = 10
	p := &expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: reg1,
		Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: v.size,
		CsumType: expr.CsumTypeInet, CsumOffset: offIPChecksum, CsumFlags: unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR}
	if v.size == 16 {
		// IPv6 has no checksum of its own, but the library sends the flag only
		// along with one: let it be where the address is written next.
		p.CsumOffset = offset
	}
	return p
}

// untrackRules keep connection tracking away.
func (t *table) untrackRules() []exprs {
	return []exprs{
		// ip daddr . meta l4proto . th dport @untracked notrack
		rule(t.service(), in(setUntracked), notrack()),
		// ip daddr . meta l4proto @untracked_any notrack
		rule(t.portless(), in(setUntrackedAny), notrack()),
		t.untrackAnswers(),
	}
}

// untrackLocalRules do so for clients on this host, and for one-packet services
// alone. Direct routing is not for them: a program would be told that each of its
// packets was dropped, and the host takes no answer from an address of its own.
func (t *table) untrackLocalRules() []exprs {
	return []exprs{
		// ip daddr . meta l4proto . th dport @services_each notrack
		rule(t.service(), in(setEach), notrack()),
		t.untrackAnswers(),
	}
}

func notrack() exprs { return exprs{&expr.Notrack{}} }

// untrackAnswers is for the answers of one-packet services.
func (t *table) untrackAnswers() exprs {
	// meta l4proto udp ip saddr . udp sport map @answers_each notrack
	return rule(protocol(protoUDP), t.source(), through(mapAnswers), notrack())
}
