// Package e2e runs lbd between real clients and real servers, each in a network
// namespace of its own.
//
// A Lab is the topology: a client and a balancer on the front network, the
// balancer and three or more real servers on the back network. Traffic is real:
// the servers answer HTTP and UDP with their names. An LBD is the lbd process in
// the balancer's namespace; the kernel's own text of its table is read from
// /proc/net/ip_vs, so that nothing of lbd has to be believed.
//
// The tests of the package run the scripts of testdata/netns (script_test.go
// describes their commands); internal/demo and internal/bench use the package as
// a library. Needs root and, for everything but the Lab, a kernel with IPVS.
package e2e
