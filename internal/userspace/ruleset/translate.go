package ruleset

import (
	"math/bits"

	"github.com/google/nftables/expr"
)

// translateRules run once a flow, at its first packet: the mark becomes the
// connection's, and the packet goes to the real server that it names.
func (t *table) translateRules(s *shape) []exprs {
	mask := t.opts.Mask
	unmarked := goTo(chainUndecided)
	if s.stateless {
		unmarked = verdict(expr.VerdictReturn)
	}
	rules := []exprs{
		// meta mark & MASK == 0 goto translate_unmarked
		rule(markIs(mask, 0), unmarked),
	}
	if !s.stateless {
		// meta mark & MASK == MASK goto refuse
		rules = append(rules, rule(markIs(mask, t.opts.Refuse()), goTo(chainRefuse)))
		if s.persistent {
			// jump fallback
			//
			// It learns templates.
			rules = append(rules, jump(chainFallback))
		}
	}
	rules = append(rules, t.carryRules(s)...)
	rules = append(rules, t.eventRules(s, 0)...)
	return append(rules, t.connectRules()...)
}

// carryRules give a flow's memory in connection tracking the mark.
func (t *table) carryRules(s *shape) []exprs {
	mask := t.opts.Mask
	foreign := ^(mask | t.opts.StateMask)
	rules := append(t.timeoutRules(s),
		// ct mark & FOREIGN != 0 jump keep_mark
		rule(ctHas(expr.CtKeyMARK, foreign), jump(chainKeep)),
		// ct mark & FOREIGN == 0 ct mark set meta mark & MASK
		rule(ctIs(expr.CtKeyMARK, foreign, 0),
			exprs{meta(expr.MetaKeyMARK, reg1), bitwise(reg1, mask, 0), setCT(expr.CtKeyMARK, reg1)}),
	)
	if s.signals {
		// meta l4proto udp ct mark & MASK @signals ct mark set ct mark | BUSY
		//
		// The first datagram is a request.
		rules = append(rules, rule(protocol(protoUDP), t.ofServers(setSignals), orCTMark(^uint32(0), t.opts.Busy())))
	}
	return rules
}

// eventRules choose what a flow tells of itself. That a connection closes is
// counted: an event of each would cost more than anything else here. They come
// after the connection's mark: set before it, signals would tell of it.
func (t *table) eventRules(s *shape, also uint32) []exprs {
	if s.allEvents {
		return nil
	}
	if s.stateless {
		// What the fallback decided tells of its start by its mark: see pickRules.
		also |= eventMark
	}
	rules := []exprs{
		// ct event set destroy
		setEvents(also | eventDestroy),
	}
	if s.signals && !s.stateless {
		// ct mark & MASK @signals ct event set destroy,mark
		rules = append(rules, rule(t.ofServers(setSignals), setEvents(also|eventDestroy|eventMark)))
	}
	// meta l4proto sctp ct event set destroy,protoinfo
	//
	// An association is active while it is established, which no packet of one side
	// alone tells. It has no signals.
	return append(rules, rule(protocol(protoSCTP), setEvents(also|eventDestroy|eventProto)))
}

// setEvents is "ct event set …".
func setEvents(mask uint32) exprs {
	return exprs{imm(reg1, u32(mask)), setCT(expr.CtKeyEVENTMASK, reg1)}
}

// connectRules send the packet to the real server that its mark names.
func (t *table) connectRules() []exprs {
	server := func(set string, port uint32) exprs {
		return rule(exprs{meta(expr.MetaKeyMARK, reg1), bitwise(reg1, t.opts.Mask, 0)}, through(set),
			exprs{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(t.family), RegAddrMin: reg1, RegProtoMin: port}})
	}
	return []exprs{
		// ct mark & MASK . ct direction @traffic
		t.count(),
		// dnat to meta mark & MASK map @servers
		server(mapServers, t.after),
		// dnat to meta mark & MASK map @servers_any
		server(mapAnyPortServer, 0),
		// drop
		//
		// The real server is gone since the verdict: the client's next try is
		// scheduled afresh.
		verdict(expr.VerdictDrop),
	}
}

// keepRules copy the mark into a connection mark that has bits of others. Before
// Linux 6.13 nftables cannot combine two registers, so each bit has a rule.
func (t *table) keepRules() []exprs {
	mask := t.opts.Mask
	// ct mark set ct mark & FOREIGN
	rules := []exprs{orCTMark(^(mask | t.opts.StateMask), 0)}
	for m := mask; m != 0; m &= m - 1 {
		bit := uint32(1) << bits.TrailingZeros32(m)
		// meta mark & BIT != 0 ct mark set ct mark | BIT
		rules = append(rules, rule(markHas(bit), orCTMark(^uint32(0), bit)))
	}
	return rules
}
