// Package nfqueue receives packets of an NFQUEUE and answers each with a verdict.
//
// One locked thread serves a queue with raw system calls, many packets a call,
// and allocates nothing a packet. Every packet gets a verdict, also one whose
// handler panics. It needs CAP_NET_ADMIN in the user namespace that owns the
// network namespace.
package nfqueue
