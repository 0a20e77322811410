package ruleset

import "github.com/google/nftables/expr"

// forwardRules keep answers of real servers that connection tracking cannot
// translate, since it has no entry for them, from reaching clients under the
// real server's own address.
func (t *table) forwardRules() []exprs {
	const known = expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED
	return []exprs{
		// ct state established,related return
		rule(ctHas(expr.CtKeySTATE, known), verdict(expr.VerdictReturn)),
		// meta l4proto != tcp return
		rule(exprs{meta(expr.MetaKeyL4PROTO, reg1), holds(expr.CmpOpNeq, reg1, []byte{protoTCP})}, verdict(expr.VerdictReturn)),
		// tcp flags & (fin|syn|rst|ack) == syn return
		rule(tcpFlags(tcpFIN|tcpSYN|tcpRST|tcpACK, expr.CmpOpEq, tcpSYN), verdict(expr.VerdictReturn)),
		// ip saddr . th sport @answers drop
		rule(t.source(), in(setSources), verdict(expr.VerdictDrop)),
		// ip saddr @answers_any drop
		rule(exprs{t.network(reg1, t.saddr)}, in(setAnyPortSource), verdict(expr.VerdictDrop)),
	}
}
