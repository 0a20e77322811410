package nfqueue

// Packet is a queued packet. It and its payload are valid only until the last of
// its batch is answered.
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
}

// Handler decides on packets. It is never called twice at the same time.
type Handler interface {
	// Batch is told of packets, at least one, that were received together, before
	// the first of them is answered: all of them had been queued then. After a
	// panic of it none is asked for, and each comes in a batch of its own.
	Batch(packets []Packet)
	// Answer returns the verdict on packet i of the last batch. Each is asked for
	// once, in order.
	Answer(i int) Verdict
}

// Each is a Handler that looks at one packet after the other. Every queue needs one
// of its own.
func Each(answer func(*Packet) Verdict) Handler { return &each{answer: answer} }

type each struct {
	answer  func(*Packet) Verdict
	packets []Packet
}

func (e *each) Batch(packets []Packet) { e.packets = packets }
func (e *each) Answer(i int) Verdict   { return e.answer(&e.packets[i]) }

// Verdict is what becomes of a packet. The zero value drops it.
type Verdict struct {
	// Accept lets it go on at the next hook.
	Accept bool
	// SetMark replaces the packet's mark, all of it, by Mark.
	SetMark bool
	Mark    uint32
}
