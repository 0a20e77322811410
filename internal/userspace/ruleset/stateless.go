package ruleset

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// Chains and sets of services whose flows connection tracking does not carry.
// They are made with the first such service.
const (
	chainUntrackIn  = "untrack_prerouting"
	chainUntrackOut = "untrack_output"
	chainDeliverIn  = "deliver_prerouting"
	chainDeliverOut = "deliver_output"
	chainAnswerIn   = "answer_input"
	chainAnswerPost = "answer_postrouting"

	chainUntrack       = "untrack"
	chainNew           = "settle_new"
	chainKnown         = "known"            // flows by direct routing
	chainFlow          = "known_flow"       // … one of them
	chainRepeat        = "known_again"      // … whose first packet comes again
	chainSend          = "deliver_flow"     // … after the queue had no reader
	chainDeliver       = "deliver"          // marked packets to real servers
	chainUnmarked      = "deliver_unmarked" //
	chainEach          = "deliver_each"     // of one-packet services
	chainAnswer        = "answer"           // of one-packet services
	chainSchedule      = "schedule"
	chainScheduleLocal = "schedule_local" // from a socket of this host
	chainSettleLocal   = "settle_local"
	chainDeliverLocal  = "deliver_local"

	setUntracked    = "untracked"     // address . protocol . port
	setUntrackedAny = "untracked_any" // address . protocol
	setRouted       = "routed"        // marks in mapHosts
	setTunnels      = "tunnels"       // marks that are sent through a tunnel
	setEach         = "services_each" // address . protocol . port
	mapAnswers      = "answers_each"  // address . port : address . port of the service
	mapHosts        = "hosts"         // mark : address to copy packets to
	mapFlows        = "flows"         // address . address . protocol . port . port : mark, with timeouts
	maxFlows        = 1 << 22         // elements of mapFlows
)

const (
	priorityUntrack = -300 // before connection tracking
	priorityDeliver = -138 // after settling
	priorityAnswer  = 100  // where source addresses are translated
)

// addStatelessSets defines the sets.
func (t *table) addStatelessSets() {
	mark, proto, port := nftables.TypeMark, nftables.TypeInetProto, nftables.TypeInetService
	t.addSet(setUntracked, nil, t.addr, proto, port)
	t.addSet(setUntrackedAny, nil, t.addr, proto)
	t.addSet(setRouted, nil, mark)
	t.addSet(setTunnels, nil, mark)
	t.addSet(setEach, nil, t.addr, proto, port)
	t.addSet(mapAnswers, concat(t.addr, port), t.addr, port)
	t.addSet(mapHosts, concat(t.addr), mark)
	t.addSet(mapFlows, concat(mark), t.addr, t.addr, proto, port, port)
	flows := t.sets[mapFlows]
	flows.HasTimeout, flows.Dynamic, flows.Size = true, true, maxFlows
}

// statelessSet says whether a set is of those.
func statelessSet(name string) bool {
	switch name {
	case setUntracked, setUntrackedAny, setRouted, setTunnels, setEach, mapAnswers, mapHosts, mapFlows:
		return true
	}
	return false
}

// statelessChains are their chains.
func (t *table) statelessChains(s *shape) []chain {
	filter, route := nftables.ChainTypeFilter, nftables.ChainTypeRoute
	in, out := nftables.ChainHookPrerouting, nftables.ChainHookOutput
	local, post := nftables.ChainHookInput, nftables.ChainHookPostrouting
	// ct state established,related return
	skip := rule(ctHas(expr.CtKeySTATE, knownStates), verdict(expr.VerdictReturn))
	return []chain{
		{name: chainUntrack, rules: t.untrackRules()},
		{name: chainFlow, rules: t.flowRules(s)},
		{name: chainKnown, rules: t.knownRules()},
		{name: chainRepeat, rules: t.repeatRules()},
		{name: chainSend, rules: append(t.tunnelRules(s), t.send(expr.MetaKeyPRIORITY))},
		{name: chainUnmarked, rules: t.unmarkedRules()},
		{name: chainEach, rules: t.eachRules()},
		{name: chainDeliver, rules: t.deliverRules(s)},
		{name: chainAnswer, rules: t.answerRules()},
		{name: chainNew, rules: t.newRules(s)},
		{name: chainSchedule, rules: t.scheduleRules(verdict(expr.VerdictAccept))},
		{name: chainScheduleLocal, rules: []exprs{rule(fromSocket(), goTo(chainSchedule))}},
		{name: chainSettleLocal, rules: []exprs{rule(fromSocket(), goTo(chainNew))}},
		{name: chainDeliverLocal, rules: []exprs{rule(fromSocket(), markHas(t.opts.Mask), goTo(chainEach))}},
		{chainUntrackIn, in, filter, priorityUntrack, []exprs{jump(chainUntrack)}},
		{chainUntrackOut, out, filter, priorityUntrack, t.untrackLocalRules()},
		{chainSettleIn, in, filter, prioritySettle, []exprs{t.settle(s)}},
		{chainSettleOut, out, filter, prioritySettle, t.settleOutRules(s)},
		{chainDeliverIn, in, filter, priorityDeliver, []exprs{skip, jump(chainDeliver)}},
		{chainDeliverOut, out, route, priorityDeliver, []exprs{ofHost(chainDeliverLocal)}},
		{chainAnswerIn, local, filter, priorityAnswer, []exprs{jump(chainAnswer)}},
		{chainAnswerPost, post, filter, priorityAnswer, []exprs{jump(chainAnswer)}},
	}
}

// ofHost is "ct state untracked goto …": copies that go to real servers come
// through the output hook as well, and differ from what a client on this host
// sends in that no socket sent them.
func ofHost(chain string) exprs {
	return rule(ctHas(expr.CtKeySTATE, expr.CtStateBitUNTRACKED), goTo(chain))
}

// fromSocket is "meta skuid != 4294967295", which holds where there is a socket.
func fromSocket() exprs {
	return exprs{meta(expr.MetaKeySKUID, reg1), holds(expr.CmpOpNeq, reg1, u32(^uint32(0)))}
}
