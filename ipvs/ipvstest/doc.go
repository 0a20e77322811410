// Package ipvstest has an in-memory IPVS table and a suite of cases that every
// IPVS table must pass.
//
// Fake behaves as the kernel does, errors and list order included, but schedules
// nothing: tests set the connection counts. It can fail at random, lose answers,
// and be changed by somebody else in the middle of a batch, which is what a
// caller of the real one has to live with.
//
// Conformance runs on Fake, on the kernel and on every other engine, so that a
// test that passes on Fake says something about the others. The facts are those
// of net/netfilter/ipvs/ip_vs_ctl.c, each also measured on a running kernel.
//
// Nothing here needs privileges or Linux.
package ipvstest
