package flowtable

import (
	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/sched"
)

// Flow is what the engine knows of a flow.
type Flow struct {
	tuple flow.Tuple
	// State is how the flow is counted.
	State sched.State
	// Generation is that of the last dump that had the flow, or of the time when
	// it was made.
	Generation uint8
	// Open says that the flow may close without a word, Reused that its entry in
	// conntrack has carried another connection before, an odd number of times.
	Open, Reused bool
	// Server is the number of the real server.
	Server uint32
	// Seq is the sequence number of the first packet: it tells a retransmission
	// from a new flow of the same tuple. Zero where the protocol has none.
	Seq uint32
	// Template is the persistence template that the flow belongs to, zero for
	// none.
	Template uint32
	// Born is when the flow was made, in the engine's ticks.
	Born uint32
	// A line of the processor's cache for each.
	_ [4]byte
}

// Tuple returns the tuple of the flow's first packet.
func (f *Flow) Tuple() flow.Tuple { return f.tuple }
