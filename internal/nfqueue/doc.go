// Package nfqueue receives packets of an NFQUEUE and answers each with a verdict.
//
// One locked thread serves a queue with raw system calls, many packets a call,
// and allocates nothing a packet (docs/decisions/0005-queue-loop.md). Every packet
// gets a verdict, also one whose handler panics or whose message is damaged. The
// package knows nothing of flows or real servers, and makes no rules: whoever
// opens a queue also sends packets to it.
//
// It needs Linux 4.3 (NETLINK_CAP_ACK) with nfnetlink_queue, and CAP_NET_ADMIN in
// the user namespace that owns the network namespace.
//
//	q, err := nfqueue.Open(nfqueue.Config{Number: 7, FailOpen: true, NetNS: -1})
//	if err != nil {
//		return err
//	}
//	defer q.Close()
//	return q.Run(ctx, nfqueue.Each(func(p *nfqueue.Packet) nfqueue.Verdict {
//		return nfqueue.Verdict{Accept: true, SetMark: true, Mark: p.Mark | 0x100}
//	}), tick)
//
// Whoever takes such rules away first takes the rule and then the queue, and the
// chains last: the kernel drops the packets that wait when any chain of their
// network namespace goes, and 6.1 warns in its log (nf_reinject) when no other
// chain of the hook is left.
package nfqueue
