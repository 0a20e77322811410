package nfqueue

import "sync/atomic"

// Stats counts what a queue's reader saw since Open.
type Stats struct {
	// Packets were received. Verdicts were given; they are as many, but for
	// packets whose message did not even have an ID.
	Packets, Verdicts uint64
	// Unknown verdicts were about packets that the kernel no longer had (ENOENT):
	// their device went away, or their rule with its chain.
	Unknown uint64
	// Refused verdicts failed otherwise.
	Refused uint64
	// Overruns are reports of the kernel that packets did not fit into the socket's
	// buffer. The queue's socket asks for none, so they stay at zero; Kernel tells
	// of packets that were lost.
	Overruns uint64
	// Malformed messages did not parse. Where the ID was known, the packet was
	// accepted without a mark.
	Malformed uint64
	// Panics of the handler. Their packets were accepted without a mark.
	Panics uint64
	// Batches are receives that brought something: Packets/Batches is how many
	// packets a system call carries.
	Batches uint64
}

type counters struct {
	packets, verdicts, unknown, refused, overruns, malformed, panics, batches atomic.Uint64
}

func (c *counters) read() Stats {
	return Stats{
		Packets: c.packets.Load(), Verdicts: c.verdicts.Load(),
		Unknown: c.unknown.Load(), Refused: c.refused.Load(),
		Overruns: c.overruns.Load(), Malformed: c.malformed.Load(),
		Panics: c.panics.Load(), Batches: c.batches.Load(),
	}
}
