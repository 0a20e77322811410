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
// ip_vs module when the family is looked up, where modules may be loaded.
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
