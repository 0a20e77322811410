package userspace

import (
	"fmt"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/flow"
)

// What strangers can make the engine remember is bounded. Senders of SYNs with
// false addresses make a flow each. Conntrack's own limit bounds those that it
// confirms, but not those that get lost behind the verdict: they stay until the
// next resync.
//
// Beyond the limit new connections are as with a full queue: balanced by weight
// alone where fail_open says so, else dropped. Those of the first kind are
// counted as soon as conntrack has them.
const (
	// minMaxFlows are the fewest flows that the engine has room for, which take
	// some 200 MB.
	minMaxFlows = 1 << 20
	// maxTemplates are the most persistence templates, as many as the rules have
	// room for. New clients get none beyond.
	maxTemplates = 1 << 20
)

// flowLimit returns how many flows to keep where conntrack has room for max: all
// of them, and as many that conntrack let go of or never had.
func flowLimit(max uint32) int {
	if n := 2 * int(max); n > minMaxFlows {
		return n
	}
	return minMaxFlows
}

// crowded says whether there is no room for a flow that the table does not have.
// It asks for a resync, which makes room where there are flows that never came to
// be. mu is held.
func (e *Engine) crowded(t *flow.Tuple) bool {
	if e.flows.Len() < e.maxFlows || e.flows.Get(t) != nil {
		return false
	}
	e.unscheduled++
	e.resyncNow()
	return true
}

// census counts the connections of a dump.
//
// Strangers are those of real servers that are not known: of another program, or
// of an lbd whose state is lost.
type census struct{ all, halfOpen, strangers int }

func (c *census) note(ev *conntrack.Event) {
	c.all++
	switch ev.TCPState {
	case tcpSynSent, tcpSynRecv, tcpSynSent2: // 0 is what is not TCP
		c.halfOpen++
	}
}

// manyHalfOpen are more connections than are in the middle of their handshake by
// chance: one that is lost stays for a minute.
const manyHalfOpen = 1000

// warnings say that most connections are not answered, since their senders are
// false or no real server can be reached; and that some are counted nowhere.
func (c *census) warnings() (list []string) {
	if c.halfOpen >= manyHalfOpen && 2*c.halfOpen >= c.all {
		list = append(list, fmt.Sprintf("%d of %d connections are half open: a flood of SYNs, or real servers or clients that cannot be reached", c.halfOpen, c.all))
	}
	if c.strangers > 0 {
		list = append(list, fmt.Sprintf("%d connections have marks of real servers that are not known: of an lbd whose state was lost, or another program uses bits of mark_mask; they are not counted", c.strangers))
	}
	return list
}
