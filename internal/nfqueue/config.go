package nfqueue

import "log/slog"

// Config says which queue to bind, and how.
type Config struct {
	// Number of the queue, within the network namespace.
	Number uint16
	// MaxLen is how many packets may wait for a verdict. 0 means 8192: at 250,000
	// packets a second that bridges a pause of 30 ms.
	MaxLen uint32
	// CopyRange is how many bytes of a packet come here, from the network header
	// on. 0 means 128: both headers with all options, in nearly every packet.
	CopyRange uint32
	// ReadBuffer is the size of the socket's buffer in bytes. 0 has room for MaxLen
	// packets.
	ReadBuffer int
	// FailOpen accepts packets that do not fit into the queue, without a verdict;
	// otherwise the kernel drops them.
	FailOpen bool
	// GSO takes packets that are larger than the device's MTU as they are;
	// otherwise the kernel cuts them into segments, each with its own verdict.
	GSO bool
	// Part and Parts are for queues that the rules choose by the processor
	// (NFQ_FLAG_CPU_FANOUT): Run then keeps to the processors whose number modulo
	// Parts is Part, which are those that the queue's packets come from, as far as
	// it may use them. 0 Parts lets it run anywhere.
	Part, Parts int
	// NetNS is a descriptor of the network namespace to bind the queue in. Below 0
	// is the caller's own.
	NetNS int
	// Logger gets faults, each kind at most once in ten seconds. nil discards.
	Logger *slog.Logger
}

const (
	defaultMaxLen    = 8192
	defaultCopyRange = 128
	// maxCopyRange is what the kernel can copy: an attribute's length has 16 bits
	// (nfqnl_set_mode).
	maxCopyRange = 0xffff - attrLen
	// packetMemory is what a queued packet takes of the socket's buffer beside its
	// payload: the kernel counts the whole buffers that the message lies in.
	packetMemory  = 2 << 10
	minReadBuffer = 1 << 20
)

// filled returns c with the defaults filled in.
func (c Config) filled() Config {
	if c.MaxLen == 0 {
		c.MaxLen = defaultMaxLen
	}
	if c.CopyRange == 0 {
		c.CopyRange = defaultCopyRange
	}
	c.CopyRange = min(c.CopyRange, maxCopyRange)
	if c.ReadBuffer <= 0 {
		c.ReadBuffer = int(min(max(int64(c.MaxLen)*int64(packetMemory+c.CopyRange), minReadBuffer), 1<<30))
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) settings() settings {
	s := settings{queue: c.Number, maxLen: c.MaxLen, copyRange: c.CopyRange}
	if c.FailOpen {
		s.flags |= configFailOpen
	}
	if c.GSO {
		s.flags |= configGSO
	}
	return s
}
