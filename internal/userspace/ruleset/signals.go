package ruleset

import "github.com/google/nftables/expr"

// signalRules set the Busy bit of a connection's mark while a request has no
// response yet; each change makes one event. They run for packets of known flows
// to and from real servers in setSignals.
func (t *table) signalRules(s *shape) []exprs {
	busy := t.opts.Busy()
	set := orCTMark(^uint32(0), busy)
	if !s.allEvents {
		// The connection may have begun before anybody wanted signals.
		set = rule(setEvents(eventDestroy|eventMark), set)
	}
	set = rule(ctIs(expr.CtKeyMARK, busy, 0), set)
	clear := rule(ctHas(expr.CtKeyMARK, busy), orCTMark(^busy, 0))
	psh := func(also uint8) exprs { return tcpFlags(tcpPSH|also, expr.CmpOpNeq, 0) }
	return []exprs{
		// meta l4proto udp ct direction original ct mark & BUSY == 0 ct event set destroy,mark ct mark set ct mark | BUSY
		rule(protocol(protoUDP), original(), set),
		// meta l4proto udp ct direction reply ct mark & BUSY != 0 ct mark set ct mark & ~BUSY
		rule(protocol(protoUDP), reply(), clear),
		// meta l4proto != tcp return
		rule(notTCP(), verdict(expr.VerdictReturn)),
		// ct direction reply tcp flags & (psh|fin|rst) != 0 ct mark & BUSY != 0 ct mark set ct mark & ~BUSY
		rule(reply(), psh(tcpFIN|tcpRST), clear),
		// ct direction original tcp flags & rst != 0 ct mark & BUSY != 0 ct mark set ct mark & ~BUSY
		rule(original(), tcpFlags(tcpRST, expr.CmpOpNeq, 0), clear),
		// ct direction original tcp flags & (psh|rst) == psh ct mark & BUSY == 0 ct event set destroy,mark ct mark set ct mark | BUSY
		rule(original(), tcpFlags(tcpPSH|tcpRST, expr.CmpOpEq, tcpPSH), set),
	}
}

// editSignals collects the edits of setSignals: the marks of real servers whose
// service wants signals.
func (t *table) editSignals(c *changes, s *Spec) {
	want := map[uint32]bool{}
	wanting := map[uint32]bool{}
	for i := range s.Services {
		if v := &s.Services[i]; v.Signals && v.Key.Family == t.is {
			wanting[v.ID] = true
		}
	}
	if len(wanting) > 0 {
		for i := range s.Servers {
			if v := &s.Servers[i]; wanting[v.Service] {
				want[v.Mark] = true
			}
		}
	}
	for m := range t.signals {
		if !want[m] {
			c.remove(setSignals, element{key: string(u32(m))})
		}
	}
	for m := range want {
		if !t.signals[m] {
			c.insert(setSignals, element{key: string(u32(m))})
		}
	}
	t.signals = want
}
