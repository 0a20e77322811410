package ruleset

import (
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Packets to a real server by direct routing keep their addresses, so connection
// tracking, which sees the client's half of the flow alone, is of no use. These
// flows are not tracked; a map from their addresses and ports to the real
// server's mark takes its place. It is learned after the verdict, and looked up
// before anything else. A packet goes its way as a copy that is routed to the
// real server's address (the kernel's nf_dup_ipv4 and nf_dup_ipv6), and the
// original is dropped, before the host would take it for its own.

// regMark is behind the longest key, addr . addr . protocol . port . port.
const regMark = reg32 + 12

// dynsetDelete is NFT_DYNSET_OP_DELETE, Linux 5.4.
const dynsetDelete = 2

// synTimeout is how long a connection lives that has sent no more than its first
// packet, as in IPVS's SYN_RECV.
const synTimeout = 60 * time.Second

// tuple loads "ip saddr . ip daddr . meta l4proto . th sport . th dport".
func (t *table) tuple() exprs {
	proto := reg32 + t.size/2 // two addresses
	return exprs{
		t.network(reg1, t.saddr), t.network(reg32+t.size/4, t.daddr),
		meta(expr.MetaKeyL4PROTO, proto), transport(proto+1, 0, 2), transport(proto+2, offDPort, 2),
	}
}

// flow is "meta priority set TUPLE map @flows". The nft command cannot list a
// value that is looked up and looked up again, so the priority carries it.
func (t *table) flow() exprs {
	return append(t.tuple(), &expr.Lookup{SourceRegister: reg1, DestRegister: reg1, IsDestRegSet: true, SetName: mapFlows},
		setMeta(expr.MetaKeyPRIORITY, reg1))
}

// active is "meta priority & INACTIVE == 0".
func (t *table) active() exprs {
	return exprs{meta(expr.MetaKeyPRIORITY, reg1), bitwise(reg1, t.opts.Inactive(), 0), holds(expr.CmpOpEq, reg1, u32(0))}
}

// update is "update @flows { TUPLE timeout T : … }" with the value in regMark. An
// element that is there keeps its value.
func (t *table) update(timeout time.Duration) exprs {
	return append(t.tuple(), &expr.Dynset{SrcRegKey: reg1, SrcRegData: regMark, SetName: mapFlows,
		Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: timeout})
}

// replace is "delete @flows { TUPLE : … } update @flows { TUPLE timeout T : … }". The
// kernel asks for a value to delete, too.
func (t *table) replace(timeout time.Duration) exprs {
	return append(t.tuple(),
		&expr.Dynset{SrcRegKey: reg1, SrcRegData: regMark, SetName: mapFlows, Operation: dynsetDelete},
		&expr.Dynset{SrcRegKey: reg1, SrcRegData: regMark, SetName: mapFlows,
			Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: timeout})
}

// send is "dup to KEY & MASK map @hosts drop". A priority is taken back first,
// since the copy would have it and the queues of devices go by it.
func (t *table) send(key expr.MetaKey) exprs {
	e := exprs{meta(key, regMark), bitwise(regMark, t.opts.Mask, 0)}
	if key == expr.MetaKeyPRIORITY {
		e = append(e, imm(reg1, u32(0)), setMeta(expr.MetaKeyPRIORITY, reg1))
	}
	return append(e,
		&expr.Lookup{SourceRegister: regMark, DestRegister: reg1, IsDestRegSet: true, SetName: mapHosts},
		&expr.Dup{RegAddr: reg1},
		&expr.Verdict{Kind: expr.VerdictDrop},
	)
}

// knownRules look for the flow of a packet that connection tracking does not
// know.
func (t *table) knownRules() []exprs {
	return append(t.errorRules(),
		// meta l4proto tcp tcp flags & (fin|syn|rst|ack) == syn return
		//
		// A new connection, or one anew: the daemon tells by its number.
		rule(protocol(protoTCP), tcpFlags(tcpFIN|tcpSYN|tcpRST|tcpACK, expr.CmpOpEq, tcpSYN), verdict(expr.VerdictReturn)),
		// meta l4proto sctp @th,96,8 == 1 return
		rule(protocol(protoSCTP), exprs{transport(reg1, offSCTPType, 1), holds(expr.CmpOpEq, reg1, []byte{sctpInit})}, verdict(expr.VerdictReturn)),
		// meta priority set TUPLE map @flows goto known_flow
		rule(t.flow(), goTo(chainFlow)),
	)
}

// errorRules pass on ICMP errors about what a real server sent to a client, such
// as "fragmentation needed": they come to the address of the service, and have
// the beginning of that packet, after 8 bytes of ICMP's own.
func (t *table) errorRules() []exprs {
	const inner = 8
	at := func(reg, offset, size uint32) expr.Any { return transport(reg, inner+offset, size) }
	proto := reg32 + t.size/2
	// The flow is the client's, so that destination and source change places.
	tuple := func(header, next uint32) exprs {
		return exprs{
			at(reg1, t.daddr, t.size), at(reg32+t.size/4, t.saddr, t.size), at(proto, next, 1),
			at(proto+1, header+offDPort, 2), at(proto+2, header, 2),
			&expr.Lookup{SourceRegister: reg1, DestRegister: reg1, IsDestRegSet: true, SetName: mapFlows},
			setMeta(expr.MetaKeyPRIORITY, reg1),
		}
	}
	if t.size == 16 {
		const nextHeader, headerSize = 6, 40
		return []exprs{
			// meta l4proto ipv6-icmp icmpv6 type < 128 meta priority set INNER map @flows goto deliver_flow
			rule(protocol(unix.IPPROTO_ICMPV6), exprs{transport(reg1, 0, 1), holds(expr.CmpOpLt, reg1, []byte{128})},
				tuple(headerSize, nextHeader), goTo(chainSend)),
		}
	}
	const protocolOffset, headerSize = 9, 20
	icmp := func(kind byte) exprs {
		return rule(protocol(unix.IPPROTO_ICMP), exprs{transport(reg1, 0, 1), holds(expr.CmpOpEq, reg1, []byte{kind}),
			at(reg1, 0, 1), holds(expr.CmpOpEq, reg1, []byte{4<<4 | headerSize/4})}, // without options
			tuple(headerSize, protocolOffset), goTo(chainSend))
	}
	return []exprs{
		// meta l4proto icmp icmp type destination-unreachable @th,64,8 0x45 meta priority set INNER map @flows goto deliver_flow
		icmp(3),
		// meta l4proto icmp icmp type time-exceeded …
		icmp(11),
		// meta l4proto icmp icmp type parameter-problem …
		icmp(12),
	}
}

// flowRules refresh a flow, whose mark and state is in the priority, and send its
// packet.
func (t *table) flowRules(s *shape) []exprs {
	var rules []exprs
	priority := exprs{meta(expr.MetaKeyPRIORITY, regMark)}
	if s.dead {
		// meta priority & MASK @dead drop
		rules = append(rules, rule(exprs{meta(expr.MetaKeyPRIORITY, reg1), bitwise(reg1, t.opts.Mask, 0)},
			in(setDead), verdict(expr.VerdictDrop)))
	}
	rules = append(rules,
		// meta l4proto tcp tcp flags & (fin|rst) != 0 meta priority & INACTIVE == 0
		//	delete @flows { TUPLE : … } update @flows { TUPLE timeout FIN : meta priority | INACTIVE }
		//	meta priority set 0 queue to N-M
		//
		// The first packet that closes goes through the queue, so that the daemon
		// counts the connection as inactive.
		rule(protocol(protoTCP), tcpFlags(tcpFIN|tcpRST, expr.CmpOpNeq, 0), t.active(), priority,
			exprs{bitwise(regMark, ^t.opts.Inactive(), t.opts.Inactive())}, t.replace(s.timeouts.TCPFin),
			exprs{imm(reg1, u32(0)), setMeta(expr.MetaKeyPRIORITY, reg1)}, t.queue()),
		// meta l4proto tcp meta priority & INACTIVE == 0 update @flows { TUPLE timeout TCP : meta priority }
		//
		// Once closed its time runs out.
		rule(protocol(protoTCP), t.active(), priority, t.update(s.timeouts.TCP)),
		// meta l4proto udp update @flows { TUPLE timeout UDP : meta priority }
		rule(protocol(protoUDP), priority, t.update(s.timeouts.UDP)),
		// meta l4proto sctp update @flows { TUPLE timeout TCP : meta priority }
		rule(protocol(protoSCTP), priority, t.update(s.timeouts.TCP)),
	)
	rules = append(rules, t.tunnelRules(s)...)
	return append(rules,
		// meta priority set 0 dup to meta priority & MASK map @hosts drop
		t.send(expr.MetaKeyPRIORITY),
	)
}

// tunnelRules mark the packets of known flows that go through a tunnel, which
// knows its end by the mark. Bits of others are lost there.
func (t *table) tunnelRules(s *shape) []exprs {
	if !s.tunnels {
		return nil
	}
	return []exprs{
		// meta priority & MASK @tunnels meta mark set meta priority & MASK
		rule(exprs{meta(expr.MetaKeyPRIORITY, reg1), bitwise(reg1, t.opts.Mask, 0)}, in(setTunnels),
			exprs{setMeta(expr.MetaKeyMARK, reg1)}),
	}
}

// repeatRules let the first packet of a connection that comes again, while nobody
// reads the queue, go where it went before.
func (t *table) repeatRules() []exprs {
	return []exprs{
		// meta priority & INACTIVE == 0 goto pick
		rule(t.active(), goTo(chainPick)),
		// meta priority set 0
		{imm(reg1, u32(0)), setMeta(expr.MetaKeyPRIORITY, reg1)},
	}
}

// deliverRules run after everything else: packets with a mark go to the real
// server here, unless connection tracking translates them later.
func (t *table) deliverRules(s *shape) []exprs {
	learn := func(protocol exprs, timeout time.Duration) exprs {
		return rule(protocol, exprs{
			meta(expr.MetaKeyMARK, regMark), bitwise(regMark, t.opts.Mask, 0),
			&expr.Lookup{SourceRegister: regMark, SetName: setRouted},
		}, t.replace(timeout))
	}
	return []exprs{
		// meta mark & MASK == 0 goto deliver_unmarked
		rule(markIs(t.opts.Mask, 0), goTo(chainUnmarked)),
		// meta l4proto udp ip daddr . meta l4proto . th dport @services_each goto deliver_each
		rule(t.service(), in(setEach), goTo(chainEach)),
		// meta l4proto tcp tcp flags & (fin|syn|rst|ack) == syn meta mark & MASK @routed
		//	delete @flows { TUPLE } update @flows { TUPLE timeout 60s : meta mark & MASK }
		//
		// A client may use a port again for another connection: an old element
		// would keep its value.
		learn(rule(protocol(protoTCP), tcpFlags(tcpFIN|tcpSYN|tcpRST|tcpACK, expr.CmpOpEq, tcpSYN)), synTimeout),
		// meta l4proto udp …
		learn(protocol(protoUDP), s.timeouts.UDP),
		// meta l4proto sctp @th,96,8 == 1 …
		learn(rule(protocol(protoSCTP), exprs{transport(reg1, offSCTPType, 1), holds(expr.CmpOpEq, reg1, []byte{sctpInit})}), synTimeout),
		// dup to meta mark & MASK map @hosts drop
		t.send(expr.MetaKeyMARK),
	}
}

// unmarkedRules send what closed a connection and found no reader.
func (t *table) unmarkedRules() []exprs {
	return []exprs{
		// meta l4proto != tcp return
		rule(notTCP(), verdict(expr.VerdictReturn)),
		// tcp flags & (fin|rst) == 0 return
		rule(tcpFlags(tcpFIN|tcpRST, expr.CmpOpEq, 0), verdict(expr.VerdictReturn)),
		// meta priority set TUPLE map @flows goto deliver_flow
		rule(t.flow(), goTo(chainSend)),
	}
}
