package ruleset

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	protoTCP  = unix.IPPROTO_TCP
	protoUDP  = unix.IPPROTO_UDP
	protoSCTP = unix.IPPROTO_SCTP
)

// settleRules run for every packet after the queue; most leave after the second.
func (t *table) settleRules(s *shape) []exprs {
	inactive := t.opts.Inactive()
	rules := []exprs{
		// ct state new goto settle_new
		// ct state new,untracked goto settle_new
		rule(ctHas(expr.CtKeySTATE, s.undecided()), goTo(chainNew)),
	}
	if s.dead {
		// ct direction original ct mark & MASK @dead drop
		//
		// As a deleted real server's in IPVS: no packet to it, answers pass.
		rules = append(rules, rule(original(),
			exprs{ct(expr.CtKeyMARK, reg1), bitwise(reg1, t.opts.Mask, 0)}, in(setDead), verdict(expr.VerdictDrop)))
	}
	if s.signals {
		// ct mark & MASK @signals jump signals
		rules = append(rules, rule(t.isSignalled(), jump(chainSignals)))
	}
	return append(rules,
		// meta l4proto != tcp return
		rule(exprs{meta(expr.MetaKeyL4PROTO, reg1), holds(expr.CmpOpNeq, reg1, []byte{protoTCP})}, verdict(expr.VerdictReturn)),
		// tcp flags & (fin|syn|rst) == 0 return
		rule(tcpFlags(tcpFIN|tcpSYN|tcpRST, expr.CmpOpEq, 0), verdict(expr.VerdictReturn)),
		// ct mark & MASK == 0 return
		rule(ctIs(expr.CtKeyMARK, t.opts.Mask, 0), verdict(expr.VerdictReturn)),
		// tcp flags & (fin|syn|rst|ack) == syn ct direction original ct mark & INACTIVE != 0 ct mark set ct mark & ~INACTIVE
		//
		// Where a client's port is used again and the last packet of the reset
		// connection was no RST, connection tracking goes on with the old entry.
		rule(tcpFlags(tcpFIN|tcpSYN|tcpRST|tcpACK, expr.CmpOpEq, tcpSYN), original(),
			ctHas(expr.CtKeyMARK, inactive), orCTMark(^inactive, 0)),
		// tcp flags & (fin|rst) == 0 return
		rule(tcpFlags(tcpFIN|tcpRST, expr.CmpOpEq, 0), verdict(expr.VerdictReturn)),
		// tcp flags rst ct direction original ct status & assured == 0 return
		//
		// A client's RST before the connection is established changes nothing
		// in IPVS.
		rule(tcpFlags(tcpRST, expr.CmpOpNeq, 0), original(), ctIs(expr.CtKeySTATUS, ctAssured, 0), verdict(expr.VerdictReturn)),
		// ct mark & INACTIVE == 0 ct mark set ct mark | INACTIVE ct mark & MASK @closing
		//
		// Once a flow: the connection is inactive from here on, which makes an event
		// and which the element counts.
		rule(ctIs(expr.CtKeyMARK, inactive, 0), orCTMark(^uint32(0), inactive),
			exprs{ct(expr.CtKeyMARK, reg1), bitwise(reg1, t.opts.Mask, 0)}, in(setClosing)),
	)
}

// newRules run for packets of new flows, with or without a verdict.
func (t *table) newRules(s *shape) []exprs {
	rules := []exprs{
		// ct status confirmed return
		rule(ctHas(expr.CtKeySTATUS, ctConfirmed), verdict(expr.VerdictReturn)),
		// meta mark & MASK == MASK goto refuse
		rule(markIs(t.opts.Mask, t.opts.Refuse()), goTo(chainRefuse)),
	}
	if s.stateless {
		// meta mark & MASK == 0 meta priority set TUPLE map @flows jump known_again
		rules = append(rules, rule(markIs(t.opts.Mask, 0), t.flow(), jump(chainRepeat)))
	}
	if !s.persistent {
		// meta mark & MASK != 0 return
		rules = append(rules, rule(markHas(t.opts.Mask), verdict(expr.VerdictReturn)))
	}
	return append(rules,
		// meta l4proto tcp tcp flags & (fin|syn|rst|ack) != syn return
		rule(protocol(protoTCP), tcpFlags(tcpFIN|tcpSYN|tcpRST|tcpACK, expr.CmpOpNeq, tcpSYN), verdict(expr.VerdictReturn)),
		// meta l4proto sctp @th,96,8 != 1 return
		rule(protocol(protoSCTP), exprs{transport(reg1, offSCTPType, 1), holds(expr.CmpOpNeq, reg1, []byte{sctpInit})}, verdict(expr.VerdictReturn)),
		// meta mark & ~MASK . meta l4proto vmap @chains_mark
		rule(t.foreignMark(), vmap(mapMarks)),
		// ip daddr . meta l4proto . th dport vmap @chains
		rule(t.service(), vmap(mapServices)),
		// ip daddr . meta l4proto vmap @chains_any
		rule(t.portless(), vmap(mapAnyPort)),
	)
}

// refuseRules answer as IPVS does where no real server is left.
func (t *table) refuseRules() []exprs {
	if t.able.Reject != nil {
		return []exprs{verdict(expr.VerdictDrop)}
	}
	return []exprs{
		// reject with icmp port-unreachable
		// reject with icmpv6 port-unreachable
		{t.reject()},
	}
}
