// Package conntrack reads the kernel's connection tracking over netlink at full
// speed: events of flows, filtered dumps, and deletes by mark.
//
// It is not a general library: it decodes what the userspace engine counts from,
// and allocates nothing an event. Flows of TCP, UDP and SCTP in the default zone
// are all it tells of; others are skipped.
//
// It needs CAP_NET_ADMIN in the user namespace that owns the network namespace,
// and Linux 4.18 (statistics); a dump by status bits is done by kernels from
// 5.15 on and here for older ones.
//
//	events, err := conntrack.OpenEvents(conntrack.EventConfig{NetNS: -1, Groups: conntrack.Updates | conntrack.Destroys})
//	...
//	n, err := events.Drain(func(ev *conntrack.Event) { ... })
//	if errors.Is(err, conntrack.ErrOverrun) { // events were lost: read the table
//		err = table.Dump(ctx, conntrack.Filter{Mark: 0x100, MarkMask: 0x0fffff00}, ...)
//	}
//
// # What the kernel does
//
// Tests pin these, on 6.18 and 6.1:
//
//   - Who emits. With net.netfilter.nf_conntrack_events=0 exactly the flows with
//     "ct event set". With 1 all flows; ours then make a New too, since the change
//     of the mark is noted. With 2, the default, a flow that began while nobody on
//     the machine listened, in whatever namespace, never makes an event, whatever
//     is set.
//   - Joining a group loads nf_conntrack_netlink but does not wait for it;
//     OpenEvents does.
//   - Order. A SYN that finds its tuple in TIME_WAIT makes the kernel delete the
//     entry, and its Destroy is queued before the SYN passes priority -200: who
//     gets the SYN from a queue behind that and then drains the events has seen
//     the old flow's end.
//   - A change of the mark is told of when its packet leaves the host. If that is
//     dropped after the change, the event waits for the flow's next packet.
//   - Expired entries are looked for once a minute at worst: on an idle host a
//     Destroy came 50 s late. A dump leaves them out and ends them on its way.
//     Event.Stop is when their time was over, Event.At when the kernel saw it.
//   - Losses. After ENOBUFS the kernel drops events until the queue is empty.
//   - An ICMP error belongs to its flow and makes no event; an entry that only
//     got such an answer has no StatusSeenReply.
package conntrack
