package ruleset

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// strayRules keep answers of real servers that connection tracking cannot
// translate, since it has no entry for them, from reaching clients under the
// real server's own address. Answers to this host pass, it knows what to do. Where
// the kernel cannot tell, the forward hook does: see forwardRules.
func (t *table) strayRules() []exprs {
	if t.able.Fib != nil {
		return []exprs{verdict(expr.VerdictAccept)}
	}
	// fib daddr type != local drop
	drop := rule(exprs{t.localDestination(), holds(expr.CmpOpNeq, reg1, u32(unix.RTN_LOCAL))}, verdict(expr.VerdictDrop))
	return t.untranslated(drop)
}

// localDestination loads "fib daddr type".
func (t *table) localDestination() expr.Any {
	return &expr.Fib{Register: reg1, ResultADDRTYPE: true, FlagDADDR: true}
}

// forwardRules do what strayRules do where packets are forwarded.
func (t *table) forwardRules() []exprs {
	return append([]exprs{
		// ct state established,related return
		rule(ctHas(expr.CtKeySTATE, knownStates), verdict(expr.VerdictReturn)),
	}, t.untranslated(verdict(expr.VerdictDrop))...)
}

// untranslated are rules for packets of no flow that come from where a real server
// answers.
func (t *table) untranslated(drop exprs) []exprs {
	return []exprs{
		// meta l4proto != tcp accept
		rule(notTCP(), verdict(expr.VerdictAccept)),
		// tcp flags & (fin|syn|rst|ack) == syn accept
		rule(tcpFlags(tcpFIN|tcpSYN|tcpRST|tcpACK, expr.CmpOpEq, tcpSYN), verdict(expr.VerdictAccept)),
		// ip saddr . th sport @answers … drop
		rule(t.source(), in(setSources), drop),
		// ip saddr @answers_any … drop
		rule(exprs{t.network(reg1, t.saddr)}, in(setAnyPortSource), drop),
	}
}
