// Package flowtable is the userspace engine's table of flows: which real server
// a flow was given to, and how it is counted.
//
// It is hashed with a secret seed, holds no pointers but to chunks of flows, and
// allocates only when it grows. It grows in many small steps, since a packet
// waits in the queue for each of them, and without leaving garbage of the size
// of its flows: some 85 bytes for each, at any number above thousands. It does
// no I/O and has no lock: its owner guards it.
package flowtable
