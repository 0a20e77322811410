package nfqueue

// Packet is a queued packet. It and its payload are valid only until the handler
// returns.
type Packet struct {
	// ID is the kernel's, unique in the queue.
	ID uint32
	// Hook is where it was queued: NF_INET_PRE_ROUTING or NF_INET_LOCAL_OUT.
	Hook uint8
	// Mark is the packet's mark.
	Mark uint32
	// Payload begins with the network header. It is cut at the queue's copy
	// range; Length is the whole packet's (NFQA_CAP_LEN where it was cut).
	Payload []byte
	Length  int
	// Batch counts the system calls that received packets, from 1: what are of the
	// same had all been queued when the handler saw the first of them.
	Batch uint64
}

// Verdict is what becomes of a packet. The zero value drops it.
type Verdict struct {
	// Accept lets it go on at the next hook.
	Accept bool
	// SetMark replaces the packet's mark, all of it, by Mark.
	SetMark bool
	Mark    uint32
}
