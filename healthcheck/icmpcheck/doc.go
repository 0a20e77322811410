// Package icmpcheck probes hosts with an ICMP or ICMPv6 echo request.
//
// Only an echo reply of the target that repeats id, sequence number and payload
// counts. An ICMP error that quotes the request, such as a router's "host
// unreachable", fails the check at once, with the words of that error.
//
//	m := icmpcheck.Check{}
//
// A target is a host: its port means nothing here, and port 0 lets the services
// of a host share one probe.
//
// It needs Linux, and either CAP_NET_RAW for a raw socket or lbd's group within
// the sysctl net.ipv4.ping_group_range, which is also that of IPv6, for an
// unprivileged one. The latter is tried where the former is refused. Messages are
// coded by golang.org/x/net/icmp; docs/decisions/0011-icmp-check.md tells why no
// library makes the whole check.
package icmpcheck
