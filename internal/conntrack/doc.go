// Package conntrack reads the kernel's connection tracking over netlink at full
// speed: events of flows, filtered dumps, and deletes by mark.
//
// It is not a general library: it decodes what the userspace engine counts from,
// and allocates nothing an event. It needs CAP_NET_ADMIN in the user namespace
// that owns the network namespace.
package conntrack
