// Package dnscheck probes DNS servers: it asks one question and judges the
// answer.
//
// The reply must come from the target, carry the random id of the query and
// repeat its question; whatever else arrives is ignored until the deadline. A
// reply over UDP that was cut short is asked for again over TCP, within the same
// deadline. Names are compared without regard to case (RFC 4343).
//
//	m := dnscheck.Check{Name: "example.org", Type: 1, Answers: []string{"192.0.2.1"}}
//
// It asks the target only, resolves nothing and caches nothing. Messages are
// coded by github.com/miekg/dns; sockets are made by healthcheck.Via. A reply
// that breaks the protocol is a failed check, never a panic.
package dnscheck
