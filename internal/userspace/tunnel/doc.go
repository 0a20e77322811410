// Package tunnel wraps packets in IP-in-IP without a tunnel device.
//
// A route to an address that nobody has carries a BPF program (a "lightweight
// tunnel", lwtunnel of ip-route(8)). What is sent there gets an outer header by
// its mark, or its priority, and is routed again by that. So one route an address
// family serves any number of tunnel ends, and hosts without the ipip module can
// have them.
//
// Program, map and routes live in the kernel: packets are wrapped also while
// nobody runs. Needs CAP_NET_ADMIN, CAP_BPF (or CAP_SYS_ADMIN), CAP_SYS_ADMIN for
// Probe, and Linux 5.1 or newer with CONFIG_LWTUNNEL_BPF.
package tunnel
