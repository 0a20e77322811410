// Package sysnet reads and sets what the host's network is made of: namespaces,
// addresses, sysctls.
//
// Everything happens in the network namespace of a Namespace, whichever one the
// process runs in. Entering another one needs CAP_SYS_ADMIN, changing addresses
// CAP_NET_ADMIN; sysctls are files that root may write. Kernels from 3.9 on
// work; the mark on lbd's own addresses needs 5.18.
//
//	ns, err := sysnet.OpenNamespace("lb")
//	…
//	defer ns.Close()
//	added, err := ns.AddVIPs("lo", []netip.Addr{netip.MustParseAddr("192.0.2.10")})
//
// Warnings says what of the host would keep the balancer from working. It only
// looks; it changes nothing.
package sysnet
