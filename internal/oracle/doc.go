// Package oracle compares package sched with the kernel, pick for pick.
//
// It is for tests only. A balancer stands between the two ends of a wire: forged
// segments go in at one end, and what the kernel made of the first segment of a
// connection comes out at the other, where its link address tells the real
// server. Nothing is read from counters, so a pick costs two system calls.
// Segments of a client open, close and expire connections; edits of real servers
// go to the kernel and to a sched.Table alike.
//
// The kernel is right: where they differ, sched is to be changed.
package oracle
