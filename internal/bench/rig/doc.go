// Package rig is the network of the benchmarks: a client, a balancer and real
// servers, each in a network namespace of its own, and the load between them.
//
//	client eth0 ---- front balancer s1 ---- eth0 server 1
//	                                s2 ---- eth0 server 2 ...
//
// The client and the servers are small C programs (internal/bench/load), so that
// a benchmark measures little of its own load. What balances is the caller's.
// Needs root, or "unshare -Urn".
package rig
