package ruleset

import (
	"encoding/binary"
	"fmt"
)

// Closed calls visit with the mark of each real server by masquerading, and how
// many of its TCP connections closed since it came into the rules: the first FIN
// or RST of either side that counts. Those by FIN of a real server with Quiet are
// quiet: they make no event at their end, and are counted by themselves. It never
// waits for Apply and allocates nothing, but is neither for two callers at once nor
// together with Traffic.
//
// The counts only grow, but may begin again at 0 when everything is written
// afresh. While rules change, by whomever, some real servers may be left out or
// come twice; the next call makes up for it. Without tables there are none. Two
// packets of both sides that close at the same instant on two processors may
// count twice. What was visited before an error holds.
func (r *Rules) Closed(visit func(mark uint32, n uint64, quiet bool)) error {
	if err := r.counters.read(r.counters.closing, r.opts.closings(visit)); err != nil {
		return fmt.Errorf("read nftables counters: %w", err)
	}
	return nil
}

// closings reads elements of setClosing. Their keys have Inactive where the end is
// quiet.
func (o *Options) closings(visit func(mark uint32, n uint64, quiet bool)) countVisitor {
	return func(key []byte, n, _ uint64) {
		if len(key) != 4 {
			return
		}
		mark := binary.NativeEndian.Uint32(key)
		if of := mark &^ o.Inactive(); o.isServer(of) {
			visit(of, n, of != mark)
		}
	}
}
