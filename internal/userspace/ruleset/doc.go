// Package ruleset keeps the nftables tables of the userspace engine.
//
// A packet of a new flow to a virtual service is sent to a queue; the verdict
// that comes back marks the packet with its real server; the rules turn the mark
// into a destination address. Connection tracking carries the rest of the flow,
// so each other packet of it is counted and meets one rule more, and a few where it
// begins or ends a connection.
//
// Tables "ip lbd" and "ip6 lbd" hold everything; no other table is read or
// written. Marks of other programs survive, in packets and in connections: lbd
// owns the bits of Options.Mask, and those of Options.StateMask in connection
// marks alone. Nothing here reads queues or counts connections, but the rules
// count those that close and what all of them send, which Rules.Closed and
// Rules.Traffic read, and where it is asked for how they begin, Rules.Handshakes.
//
// Base chains are never deleted while lbd lives, since the kernel then drops every
// queued packet of the namespace; the first Apply alone deletes those that an
// earlier lbd left and that are of no use any more. All other changes are edits in
// place, one transaction for both tables.
//
// Paths keeps tables of its own, "ip lbd_checks" and "ip6 lbd_checks", with either
// engine: see there.
//
// Needs CAP_NET_ADMIN, and Linux 5.10 or newer with nf_tables, its chain type
// nat, and NFQUEUE either as the expression "queue" or as the target of xtables.
// Rules.Abilities tells what else a host can do.
//
//	rules, err := ruleset.Open(ctx, ruleset.Options{Queue: 100, FailOpen: true})
//	…
//	defer rules.Close()
//	err = rules.Apply(ctx, ruleset.Spec{Services: services, Servers: servers})
package ruleset
