package ruleset

import "github.com/google/nftables/expr"

// Flows of stateless services never come to where addresses are translated, or
// not all of them do. While there is such a service, what the queue left undone
// is done before that, for all services.

// settleOutRules begin settling in the output hook.
func (t *table) settleOutRules(s *shape) []exprs {
	isNew := ctHas(expr.CtKeySTATE, expr.CtStateBitNEW)
	return []exprs{
		// ct state untracked goto settle_local
		ofHost(chainSettleLocal),
		// ct state new ip daddr . meta l4proto . th dport @untracked accept
		// ct state new ip daddr . meta l4proto @untracked_any accept
		//
		// As in schedule_output.
		rule(isNew, t.service(), in(setUntracked), verdict(expr.VerdictAccept)),
		rule(isNew, t.portless(), in(setUntrackedAny), verdict(expr.VerdictAccept)),
		t.settle(s),
	}
}

// settle is "ct state new,untracked goto settle_new".
func (t *table) settle(s *shape) exprs {
	return rule(ctHas(expr.CtKeySTATE, s.undecided()), goTo(chainNew))
}

// newRules run for packets of new flows, with or without a verdict.
func (t *table) newRules(s *shape) []exprs {
	rules := []exprs{
		// ct status confirmed accept
		rule(ctHas(expr.CtKeySTATUS, ctConfirmed), verdict(expr.VerdictAccept)),
		// meta mark & MASK == MASK goto refuse
		rule(markIs(t.opts.Mask, t.opts.Refuse()), goTo(chainRefuse)),
		// meta mark & MASK == 0 meta priority set TUPLE map @flows jump known_again
		rule(markIs(t.opts.Mask, 0), t.flow(), jump(chainRepeat)),
	}
	if !s.persistent {
		// meta mark & MASK != 0 accept
		rules = append(rules, rule(markHas(t.opts.Mask), verdict(expr.VerdictAccept)))
	}
	// goto fallback
	return append(rules, goTo(chainFallback))
}
