// Package ipvs is a client for the IPVS generic netlink family of the Linux
// kernel.
//
// It reads and writes virtual services, real servers (destinations), the
// connection sync daemons and the global timeouts, and reads the connection
// counts and the connection table that the kernel shows under /proc/net. It
// keeps no package state, loads no modules, logs nothing and repairs nothing:
// a caller that wants a table kept in a state runs a reconciler over it.
//
// Every command, reads too, needs CAP_NET_ADMIN in the initial user namespace
// (GENL_ADMIN_PERM in net/netfilter/ipvs/ip_vs_ctl.c). The kernel autoloads the
// ip_vs module when the family is looked up, where modules may be loaded. Any
// kernel with the family will do; what came late is named where it is declared.
//
// What the kernel does, and a caller has to know:
//
//   - An update replaces everything, so it takes a complete value. Updates keep
//     established connections.
//   - A new real server goes to the head of its service's list, where it wins
//     ties. Real servers are always returned in list order.
//   - A service that does not exist has no real servers, which is no error.
//   - A reading of the table is no snapshot. Whoever wants to delete what is
//     missing from their own list reads again first.
//   - A deleted real server is kept for two minutes, with the connections that
//     it has: re-adding it gives it its counts back. Statistics start again.
//   - Creating a service loads its scheduler's module under the lock of all of
//     IPVS. The modules of lblc and lblcr wait for a lock that the removal of
//     any network namespace holds while it waits for that of IPVS, and neither
//     ever ends (seen on 6.1 within seconds). Where namespaces come and go, load
//     ip_vs_lblc and ip_vs_lblcr before a service uses them.
//
// Validate methods refuse what the kernel takes and then ignores or forwards
// wrongly. Every write validates first.
//
// A service that balances TCP over two real servers:
//
//	c, err := ipvs.Open()
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	svc := ipvs.Service{
//		ServiceKey: ipvs.AddrService(ipvs.TCP, netip.MustParseAddrPort("192.0.2.10:80")),
//		Scheduler:  "wlc",
//	}
//	err = c.Apply(ctx, []ipvs.Op{
//		{Kind: ipvs.OpAddService, Service: svc},
//		{Kind: ipvs.OpAddDestination, Service: svc, Destination: ipvs.Destination{
//			Address: netip.MustParseAddrPort("10.0.0.2:80"), Weight: 1,
//		}},
//	})
package ipvs
