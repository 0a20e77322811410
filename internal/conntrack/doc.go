// Package conntrack reads the kernel's connection tracking over netlink at full
// speed: events of flows, filtered dumps, and deletes by mark.
//
// It is not a general library: it decodes what the userspace engine counts from,
// and allocates nothing an event. Flows of TCP, UDP and SCTP in the default zone
// are all it tells of; others are skipped.
//
// It needs CAP_NET_ADMIN in the user namespace that owns the network namespace,
// and Linux 4.18 (statistics); a dump by status bits is done by kernels from
// 5.16 on and here for older ones.
//
//	events, err := conntrack.OpenEvents(conntrack.EventConfig{NetNS: -1, Groups: conntrack.Updates | conntrack.Destroys})
//	...
//	n, err := events.Drain(func(ev *conntrack.Event) { ... })
//	if errors.Is(err, conntrack.ErrOverrun) { // events were lost: read the table
//		err = table.Dump(ctx, conntrack.Filter{Mark: 0x100, MarkMask: 0x0fffff00}, ...)
//	}
package conntrack
