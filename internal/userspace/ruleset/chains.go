package ruleset

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// Names of chains. A chain of one hook ends in the hook's name; those without are
// entered from several.
const (
	chainScheduleIn  = "schedule_prerouting"
	chainScheduleOut = "schedule_output"
	chainSettleIn    = "settle_prerouting"
	chainSettleOut   = "settle_output"
	chainTranslate   = "translate_prerouting"
	chainTranslateO  = "translate_output"
	chainForward     = "answers_forward"

	chainSchedule = "schedule" // new flows of services to the queue
	chainSettle   = "settle"   // what the queue left undone
	chainNew      = "settle_new"
	chainDraw     = "draw"      // the priority, a number, becomes a mark
	chainPick     = "pick"      // the priority becomes the mark
	chainSignals  = "signals"   // requests and responses
	chainRefuse   = "refuse"    // no real server
	chainConnect  = "translate" // mark to real server
	chainKeep     = "keep_mark" // the mark into a connection mark of others
)

// Priorities. lbd's chains run after connection tracking (-200) and the mangle
// chains of others (-150), and before the translation of addresses (-100). A
// verdict from the queue ends its base chain, so settling is a later one.
const (
	prioritySchedule  = -140
	prioritySettle    = -139
	priorityTranslate = -100
	priorityForward   = 0
)

// chain is a chain and its rules.
type chain struct {
	name     string
	hook     *nftables.ChainHook // nil for one that is only jumped to
	kind     nftables.ChainType
	priority nftables.ChainPriority
	rules    []exprs
}

// chains are all chains but those of single services.
func (t *table) chains(s *shape) []chain {
	filter, nat := nftables.ChainTypeFilter, nftables.ChainTypeNAT
	in, out, fwd := nftables.ChainHookPrerouting, nftables.ChainHookOutput, nftables.ChainHookForward
	chains := []chain{
		{name: chainSchedule, rules: t.scheduleRules()},
		{name: chainKeep, rules: t.keepRules()},
		{name: chainConnect, rules: t.translateRules(s)},
		{name: chainRefuse, rules: t.refuseRules()},
		{name: chainPick, rules: t.pickRules(s)},
		{name: chainDraw, rules: t.drawRules()},
		{name: chainNew, rules: t.newRules(s)},
		{name: chainSignals, rules: t.signalRules()},
		{name: chainSettle, rules: t.settleRules(s)},
		{chainScheduleIn, in, filter, prioritySchedule, t.undecidedRules(s, false)},
		{chainScheduleOut, out, filter, prioritySchedule, t.undecidedRules(s, true)},
		{chainSettleIn, in, filter, prioritySettle, []exprs{jump(chainSettle)}},
		{chainSettleOut, out, filter, prioritySettle, t.settleOutRules(s)},
		{chainTranslate, in, nat, priorityTranslate, []exprs{jump(chainConnect)}},
		{chainTranslateO, out, nat, priorityTranslate, []exprs{jump(chainConnect)}},
		{chainForward, fwd, filter, priorityForward, t.forwardRules()},
	}
	if s.stateless {
		return append(t.statelessChains(s), chains...)
	}
	return chains
}

// settleOutRules begin settling in the output hook.
func (t *table) settleOutRules(s *shape) []exprs {
	if !s.stateless {
		return []exprs{jump(chainSettle)}
	}
	isNew := ctHas(expr.CtKeySTATE, expr.CtStateBitNEW)
	return []exprs{
		// ct state untracked goto settle_local
		ofHost(chainSettleLocal),
		// ct state new ip daddr . meta l4proto . th dport @untracked return
		// ct state new ip daddr . meta l4proto @untracked_any return
		//
		// As in schedule_output.
		rule(isNew, t.service(), in(setUntracked), verdict(expr.VerdictReturn)),
		rule(isNew, t.portless(), in(setUntrackedAny), verdict(expr.VerdictReturn)),
		// jump settle
		jump(chainSettle),
	}
}

// undecided are the states of packets that may need a decision.
func (s *shape) undecided() uint32 {
	if s.stateless {
		return expr.CtStateBitNEW | expr.CtStateBitUNTRACKED
	}
	return expr.CtStateBitNEW
}

// undecidedRules begin the schedule chains: only flows without a decision go on.
func (t *table) undecidedRules(s *shape, output bool) []exprs {
	var rules []exprs
	if s.stateless {
		const tracked = expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED
		// ct state established,related return
		rules = append(rules, rule(ctHas(expr.CtKeySTATE, tracked), verdict(expr.VerdictReturn)))
		if output {
			rules = append(rules,
				// ct state untracked goto schedule_local
				ofHost(chainScheduleLocal),
				// ip daddr . meta l4proto . th dport @untracked return
				// ip daddr . meta l4proto @untracked_any return
				//
				// A client on this host: see untrackLocalRules.
				rule(t.service(), in(setUntracked), verdict(expr.VerdictReturn)),
				rule(t.portless(), in(setUntrackedAny), verdict(expr.VerdictReturn)),
			)
		} else {
			// jump known
			rules = append(rules, jump(chainKnown))
		}
	}
	return append(rules,
		// ct state != new return
		// ct state != new,untracked return
		rule(ctIs(expr.CtKeySTATE, s.undecided(), 0), verdict(expr.VerdictReturn)),
		// ct status confirmed return
		//
		// Retransmissions, and datagrams of a flow without an answer.
		rule(ctHas(expr.CtKeySTATUS, ctConfirmed), verdict(expr.VerdictReturn)),
		// jump schedule
		jump(chainSchedule),
	)
}

// scheduleRules send the first packets of services to the queue. IPVS looks for
// fwmark services first, those of a port next, those of every port last; the
// daemon looks again, so here the order says nothing.
func (t *table) scheduleRules() []exprs {
	return []exprs{
		// meta l4proto tcp tcp flags & (fin|syn|rst|ack) != syn return
		//
		// Connection tracking takes packets from the middle of a flow for new.
		rule(protocol(protoTCP), tcpFlags(tcpFIN|tcpSYN|tcpRST|tcpACK, expr.CmpOpNeq, tcpSYN), verdict(expr.VerdictReturn)),
		// meta l4proto sctp @th,96,8 != 1 return
		rule(protocol(protoSCTP), exprs{transport(reg1, offSCTPType, 1), holds(expr.CmpOpNeq, reg1, []byte{sctpInit})}, verdict(expr.VerdictReturn)),
		// ip daddr . meta l4proto . th dport @services queue to N-M
		rule(t.service(), in(setServices), t.queue()),
		// meta mark & ~MASK . meta l4proto @services_mark queue to N-M
		rule(t.foreignMark(), in(setMarks), t.queue()),
		// ip daddr . meta l4proto @services_any queue to N-M
		rule(t.portless(), in(setAnyPort), t.queue()),
	}
}

// foreignMark loads "meta mark & ~MASK . meta l4proto".
func (t *table) foreignMark() exprs {
	return exprs{
		meta(expr.MetaKeyMARK, reg1), bitwise(reg1, ^t.opts.Mask, 0),
		meta(expr.MetaKeyL4PROTO, reg32+1),
	}
}

// queue is the statement that queues: balanced by the flow's addresses, so that a
// retransmission meets the same reader as its original, or by the processor.
func (t *table) queue() exprs {
	if t.able.NativeQueue {
		q := &expr.Queue{Num: t.opts.Queue, Total: t.opts.Queues}
		if t.opts.FailOpen {
			q.Flag |= expr.QueueFlagBypass
		}
		if t.opts.Fanout {
			q.Flag |= expr.QueueFlagFanout
		}
		return exprs{q}
	}
	return exprs{xtQueue(t.opts)}
}
