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

// everyPacket says whether there is something to do for each packet of known flows.
func (s *shape) everyPacket() bool { return s.dead || s.signals }

// unchanged lets packets go that neither begin nor end a connection.
func (t *table) unchanged(s *shape) exprs {
	// @th,96,32 & 0x150000 == 0x100000 accept
	//
	// ACK, as all but the first packet have, and neither FIN nor RST. In other
	// protocols these bits are anything, which costs them a few rules more.
	r := tcpFlagsFast(tcpFIN|tcpRST|tcpACK, expr.CmpOpEq, tcpACK)
	if s.passive {
		// … ct mark & TRIED == 0 accept
		//
		// The first answer is looked at, whatever it is.
		r = rule(r, ctIs(expr.CtKeyMARK, t.opts.Tried(), 0))
	}
	return rule(r, verdict(expr.VerdictAccept))
}

// trackedRules run for packets of known flows that may change something: those
// that begin or end a connection, and all while there are dead real servers or
// signals are wanted. Those of other programs' flows leave with the first of them.
func (t *table) trackedRules(s *shape) []exprs {
	var rules []exprs
	if s.dead {
		// ct direction original ct mark & MASK @dead drop
		//
		// As a deleted real server's in IPVS: no packet to it, answers pass.
		rules = append(rules, rule(original(), t.ofServers(setDead), verdict(expr.VerdictDrop)))
	}
	if s.signals {
		// ct mark & MASK @signals jump signals
		rules = append(rules, rule(t.ofServers(setSignals), jump(chainSignals)))
	}
	// ct mark & MASK == 0 accept
	rules = append(rules, rule(ctIs(expr.CtKeyMARK, t.opts.Mask, 0), verdict(expr.VerdictAccept)))
	if s.everyPacket() {
		// @th,96,32 & 0x150000 == 0x100000 accept
		rules = append(rules, t.unchanged(s))
	}
	// meta l4proto != tcp accept
	rules = append(rules, rule(notTCP(), verdict(expr.VerdictAccept)))
	return append(rules,
		// tcp flags & (fin|rst) != 0 goto ending
		rule(tcpFlags(tcpFIN|tcpRST, expr.CmpOpNeq, 0), goTo(chainEnding)),
		// tcp flags & (fin|syn|rst|ack) == syn ct direction original ct mark & INACTIVE != 0
		//	ct event set destroy,mark ct mark set ct mark & ~INACTIVE ^ REUSE
		//
		// Where a client's port is used again and the last packet of the reset
		// connection was no RST, connection tracking goes on with the old entry.
		rule(tcpFlags(tcpFIN|tcpSYN|tcpRST|tcpACK, expr.CmpOpEq, tcpSYN), original(),
			ctHas(expr.CtKeyMARK, t.opts.Inactive()), t.reopen(s)),
	)
}

// reopen makes an inactive connection active again, and another one.
func (t *table) reopen(s *shape) exprs {
	again := exprs{ct(expr.CtKeyMARK, reg1), bitwise(reg1, ^t.opts.Inactive(), t.opts.Reuse()), setCT(expr.CtKeyMARK, reg1)}
	if s.allEvents {
		return again
	}
	// Such flows tell of their mark: nothing else would say that it changed.
	return rule(setEvents(eventDestroy|eventMark), again)
}

// endingRules run for FIN and RST.
func (t *table) endingRules() []exprs {
	inactive := t.opts.Inactive()
	return []exprs{
		// ct mark & INACTIVE != 0 accept
		//
		// The connection is inactive already. What follows runs once a flow, and
		// counts.
		rule(ctHas(expr.CtKeyMARK, inactive), verdict(expr.VerdictAccept)),
		// tcp flags & rst != 0 ct direction original ct status & assured == 0 accept
		//
		// A client's RST before the connection is established changes nothing
		// in IPVS.
		rule(tcpFlags(tcpRST, expr.CmpOpNeq, 0), original(), ctIs(expr.CtKeySTATUS, ctAssured, 0), verdict(expr.VerdictAccept)),
		// tcp flags & rst == 0 ct mark & MASK ^ INACTIVE @closing ct event set 0 ct mark set ct mark | INACTIVE accept
		//
		// Nobody needs the event of its end: connection tracking keeps it for a
		// known time, and dumps tell.
		rule(tcpFlags(tcpRST, expr.CmpOpEq, 0), exprs{ct(expr.CtKeyMARK, reg1), bitwise(reg1, t.opts.Mask, inactive)}, in(setClosing),
			setEvents(0), orCTMark(^uint32(0), inactive), verdict(expr.VerdictAccept)),
		// ct mark set ct mark | INACTIVE ct mark & MASK @closing
		rule(orCTMark(^uint32(0), inactive), t.ofServers(setClosing)),
	}
}

// ofServers is "ct mark & MASK @set".
func (t *table) ofServers(set string) exprs {
	return append(exprs{ct(expr.CtKeyMARK, reg1), bitwise(reg1, t.opts.Mask, 0)}, in(set)...)
}
