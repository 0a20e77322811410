// Package sched decides which real server a new connection goes to, and counts
// the connections that the decision rests on.
//
// A Table holds the real servers of one virtual service in the order of the
// kernel's list, newest first. Pick chooses and counts in one step, so that two
// packets that arrive together cannot both see the same minimum. The schedulers
// of IPVS decide as the kernel does, pick for pick; those that have no kernel
// module say so in Schedulers. The kernel's sources that each follows are named
// in its file.
//
// What is counted is what the owner says. In the kernel's terms an active
// connection is one that is opening or established, an inactive one is closing
// or a datagram flow, and a one-packet datagram is not counted at all.
//
// The package does no I/O, starts nothing, reads no clock and makes no random
// numbers: Options injects both. Pick, Peek and the counting methods allocate
// nothing. A Table is not safe for concurrent use, its owner guards it.
//
//	t, err := sched.New("wlc", sched.Options{})
//	if err != nil {
//		return err
//	}
//	a := sched.NewServer(1, netip.MustParseAddrPort("10.0.0.1:80"), sched.Config{Weight: 2})
//	t.Insert(a)
//	s := t.Pick(&sched.Packet{}, sched.Active) // nil: no server
//	t.Count(s, sched.Active, sched.Inactive)   // it closes
//	t.Count(s, sched.Inactive, sched.Uncounted)
package sched
