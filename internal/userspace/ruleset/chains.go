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
	chainSettleIn    = "settle_prerouting" // with stateless services alone
	chainSettleOut   = "settle_output"
	chainTranslateIn = "translate_prerouting"
	chainTranslateO  = "translate_output"
	chainForward     = "answers_forward" // without fib alone

	chainTracked   = "tracked"            // packets of known flows
	chainEnding    = "ending"             // … that end one
	chainSignals   = "signals"            // requests and responses
	chainStray     = "stray"              // what connection tracking cannot translate
	chainTranslate = "translate"          // mark to real server
	chainUndecided = "translate_unmarked" // what the queue left undone
	chainFallback  = "fallback"           // a service finds its own chain
	chainDraw      = "draw"               // the priority, a number, becomes a mark
	chainPick      = "pick"               // the priority becomes the mark
	chainRefuse    = "refuse"             // no real server
	chainKeep      = "keep_mark"          // the mark into a connection mark of others
)

// Priorities. lbd's chains run after connection tracking (-200) and the mangle
// chains of others (-150), and where addresses are translated (-100). A verdict
// from the queue ends its base chain, so what it left undone is done in a later
// one: in those of translation, which see the first packet of each flow alone,
// and for stateless services, which those never see, in one before.
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
		{name: chainKeep, rules: t.keepRules()},
		{name: chainRefuse, rules: t.refuseRules()},
		{name: chainPick, rules: t.pickRules(s)},
		{name: chainDraw, rules: t.drawRules()},
		{name: chainFallback, rules: t.fallbackRules()},
		{name: chainUndecided, rules: t.undecidedRules(s)},
		{name: chainTranslate, rules: t.translateRules(s)},
		{name: chainSignals, rules: t.signalRules(s)},
		{name: chainEnding, rules: t.endingRules()},
		{name: chainTracked, rules: t.trackedRules(s)},
		{name: chainStray, rules: t.strayRules()},
		{chainScheduleIn, in, filter, prioritySchedule, t.firstRules(s, false)},
		{chainScheduleOut, out, filter, prioritySchedule, t.firstRules(s, true)},
		{chainTranslateIn, in, nat, priorityTranslate, []exprs{jump(chainTranslate)}},
		{chainTranslateO, out, nat, priorityTranslate, []exprs{jump(chainTranslate)}},
	}
	if t.able.Fib != nil {
		chains = append(chains, chain{chainForward, fwd, filter, priorityForward, t.forwardRules()})
	}
	if s.tries {
		chains = append(chains, t.passiveChains(s)...)
	}
	if s.stateless {
		return append(t.statelessChains(s), chains...)
	}
	return chains
}

// knownStates are the states of packets of flows that were decided.
const knownStates = expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED

// undecided are the states of packets that may need a decision.
func (s *shape) undecided() uint32 {
	if s.stateless {
		return expr.CtStateBitNEW | expr.CtStateBitUNTRACKED
	}
	return expr.CtStateBitNEW
}

// firstRules are what every packet meets. A packet of a known flow is counted, and
// leaves unless it changes something; what belongs to no flow yet may go to the
// queue.
func (t *table) firstRules(s *shape, output bool) []exprs {
	var rules []exprs
	if s.passive {
		rules = append(rules, t.errorRule(output))
	}
	rules = append(rules, t.countRule(s, output))
	if s.passive {
		rules = append(rules, t.repliedRule(output))
	}
	rules = append(rules,
		// ct state established,related goto tracked
		rule(ctHas(expr.CtKeySTATE, knownStates), goTo(chainTracked)),
	)
	astray := goTo(chainStray)
	if output {
		astray = verdict(expr.VerdictAccept)
	}
	switch {
	case s.stateless && output:
		rules = append(rules,
			// ct state untracked goto schedule_local
			ofHost(chainScheduleLocal),
			// ip daddr . meta l4proto . th dport @untracked accept
			// ip daddr . meta l4proto @untracked_any accept
			//
			// A client on this host: see untrackLocalRules.
			rule(t.service(), in(setUntracked), verdict(expr.VerdictAccept)),
			rule(t.portless(), in(setUntrackedAny), verdict(expr.VerdictAccept)),
		)
	case s.stateless:
		// jump known
		rules = append(rules, jump(chainKnown))
	}
	rules = append(rules,
		// ct state != new goto stray
		// ct state != new,untracked goto stray
		rule(ctIs(expr.CtKeySTATE, s.undecided(), 0), astray),
	)
	confirmed := ctHas(expr.CtKeySTATUS, ctConfirmed)
	if s.dead {
		// ct status confirmed ct mark & MASK @dead drop
		//
		// As in trackedRules: nobody has answered yet.
		rules = append(rules, rule(confirmed, t.ofServers(setDead), verdict(expr.VerdictDrop)))
	}
	if s.passive {
		rules = append(rules, t.withdrawnRule())
	}
	// ct status confirmed accept
	//
	// Retransmissions, and datagrams of a flow without an answer.
	rules = append(rules, rule(confirmed, verdict(expr.VerdictAccept)))
	return append(rules, t.scheduleRules(astray)...)
}

// scheduleRules send the first packets of services to the queue. IPVS looks for
// fwmark services first, those of a port next, those of every port last; the
// daemon looks again, so here the order says nothing.
func (t *table) scheduleRules(astray exprs) []exprs {
	// meta l4proto tcp tcp flags & (fin|syn|rst|ack) != syn goto stray
	// meta l4proto sctp @th,96,8 != 1 accept
	return append(midFlow(astray, verdict(expr.VerdictAccept)),
		// ip daddr . meta l4proto . th dport @services queue to N-M
		rule(t.service(), in(setServices), t.queue()),
		// meta mark & ~MASK . meta l4proto @services_mark queue to N-M
		rule(t.foreignMark(), in(setMarks), t.queue()),
		// ip daddr . meta l4proto @services_any queue to N-M
		rule(t.portless(), in(setAnyPort), t.queue()),
	)
}

// midFlow are rules for packets from the middle of a flow, of TCP and of SCTP, which
// connection tracking takes for new.
func midFlow(tcp, sctp exprs) []exprs {
	return []exprs{
		rule(protocol(protoTCP), tcpFlags(tcpFIN|tcpSYN|tcpRST|tcpACK, expr.CmpOpNeq, tcpSYN), tcp),
		rule(protocol(protoSCTP), exprs{transport(reg1, offSCTPType, 1), holds(expr.CmpOpNeq, reg1, []byte{sctpInit})}, sctp),
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
