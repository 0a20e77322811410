// Package userspace is the engine for hosts without IPVS: a table of virtual
// services and real servers like the kernel's, with the kernel's decisions and
// counts.
//
// Only the first packet of a flow comes here, through an NFQUEUE. The scheduler
// picks a real server and counts the connection in one step; the verdict marks
// the packet with the server's mark, nftables turns the mark into a destination
// address, and connection tracking carries the rest of the flow. How many have
// closed, and what they sent, the rules count; when they end, events of connection
// tracking tell, or, where a connection closes by FIN and nobody needs to know at
// once, time and dumps. Everything that must survive the program is in the kernel
// (marks, rules, persistence templates) or in the Store (which mark is whose), so
// the next engine counts what there is, and connections go on without one. New ones
// are then balanced by weight, by the rules alone.
//
// # Locks
//
// There are two. The write lock is held by whoever changes services: Apply,
// settings, and the goroutine that looks after the rules. It may be held over
// calls to the kernel and the store. The mutex guards model, flows and templates;
// it is held for one packet, one round of events, one read of the table or of the
// rules' counters, and never over a call that waits. The write lock comes first. The model is changed
// under both, so that either is enough to read it. Queue threads take the mutex
// alone: no packet waits for nftables or a disk.
//
// # What differs from the kernel's IPVS
//
//   - Connections last as long as conntrack keeps them. Its timeouts of
//     established, closing and datagram flows are the engine's Timeouts where the
//     kernel has timeout objects; all others are conntrack's own.
//   - A connection is active until the first FIN, or an RST once the real server
//     has answered. In IPVS an RST of the client during the handshake leaves it
//     active for the rest of its 60 s; here conntrack gives it up after 10 s.
//   - A connection whose first packet got lost on its way is counted for a few
//     seconds, not 60.
//   - How many closed connections of TCP have ended is known by time, and every few
//     seconds, at most a minute, exactly.
//   - Packets and bytes of direct routing and of tunnels are not counted. Those of
//     deleted real servers count for their service.
//   - A change of a real server's forwarding method holds for connections that
//     there are, too.
//   - Tunnels are of IP in IP; those of the types GRE and GUE are refused.
//
// It needs CAP_NET_ADMIN in the user namespace that owns the network namespace,
// and what package ruleset needs.
package userspace
