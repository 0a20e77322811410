// Package netnstest gives tests network namespaces of their own.
//
// Every kernel object that a test makes lives in a namespace made by New, so no
// test can touch the machine's tables, links or sysctls. Needs CAP_SYS_ADMIN and
// CAP_NET_ADMIN (root, or "unshare -Urn"); a test says so with Require.
//
//	netnstest.Require(t, "netns")
//	client, server := netnstest.New(t), netnstest.New(t)
//	netnstest.Veth(client, "eth0", server, "eth0")
//	client.AddAddr("eth0", "192.0.2.1/24")
//	server.AddAddr("eth0", "192.0.2.2/24")
//	ln := server.Listen("tcp", "192.0.2.2:80")
//	conn, err := client.DialContext(ctx, "tcp", "192.0.2.2:80")
//
// The package is for tests and test programs, never for lbd.
package netnstest
