package packet

import "github.com/lbd-project/lbd/internal/flow"

// Info is what a packet says of its flow.
type Info struct {
	// Tuple has ports only where the packet does: a fragment other than the
	// first has none, and neither has a protocol other than TCP, UDP, SCTP.
	flow.Tuple
	// Fragment is set for a fragment other than the first.
	Fragment bool
	// SYN, ACK, FIN and RST are TCP's flags.
	SYN, ACK, FIN, RST bool
	// Seq is TCP's sequence number, or SCTP's verification tag of an INIT's
	// sender (initiate tag); zero otherwise. With the tuple it tells a
	// retransmitted first packet from a new flow of the same client's port.
	Seq uint32
	// Init is set for an SCTP packet that starts with an INIT chunk.
	Init bool
}
