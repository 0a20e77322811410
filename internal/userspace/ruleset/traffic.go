package ruleset

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables/expr"
)

// Traffic calls visit with the mark of each real server by masquerading, a
// direction, and how many packets and bytes its connections sent in that since it
// came into the rules: to the real server, or back from it. Bytes are those of IP
// packets, their headers included. It is like Closed in everything else.
func (r *Rules) Traffic(visit func(mark uint32, back bool, packets, bytes uint64)) error {
	if err := r.counters.read(r.counters.traffic, r.opts.traffic(visit)); err != nil {
		return fmt.Errorf("read nftables counters: %w", err)
	}
	return nil
}

// traffic reads elements of setTraffic: a mark, and a direction in 4 bytes of
// which the first counts.
func (o *Options) traffic(visit func(mark uint32, back bool, packets, bytes uint64)) countVisitor {
	return func(key []byte, packets, bytes uint64) {
		if len(key) != 8 || key[4] > 1 {
			return
		}
		if mark := binary.NativeEndian.Uint32(key); o.isServer(mark) {
			visit(mark, key[4] == 1, packets, bytes)
		}
	}
}

// Each packet of a flow is counted once, by the mark of its connection and its
// direction: the first where it is translated, all others where they meet the
// first rule. What this host sends to itself passes two hooks, of which the second
// does not count.

// count is "ct mark & MASK . ct direction @traffic".
func (t *table) count() exprs {
	return append(exprs{ct(expr.CtKeyMARK, reg32), bitwise(reg32, t.opts.Mask, 0), ct(expr.CtKeyDIRECTION, reg32+1)},
		in(setTraffic)...)
}

// uncounted holds for packets that have not been counted in another hook: for all
// in output, else for those with "iif != lo".
func uncounted(output bool) exprs {
	if output {
		return nil
	}
	return exprs{meta(expr.MetaKeyIIF, reg1), holds(expr.CmpOpNeq, reg1, u32(loopback))}
}

// loopback is the index of "lo" in every network namespace (LOOPBACK_IFINDEX in
// include/net/flow.h).
const loopback = 1

// countRule counts the packets of real servers, and is all that most of them meet:
//
//	iif != lo ct mark & MASK . ct direction @traffic @th,96,32 & 0x150000 == 0x100000 accept
//
// Those of a flow that is not known yet have no mark, or are its first packet
// once more.
func (t *table) countRule(s *shape, output bool) exprs {
	r := rule(uncounted(output), t.count())
	if !s.everyPacket() {
		r = append(r, t.unchanged(s)...)
	}
	return r
}
