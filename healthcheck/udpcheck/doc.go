// Package udpcheck probes servers of UDP: it sends a datagram and judges the
// answer, an ICMP error or the silence.
//
//	m := udpcheck.Check{
//		Payload:      []byte("stats"),
//		RequireReply: true,
//		Expect:       expect.Expect{Kind: expect.Text, Value: "uptime", Start: true},
//	}
//
// Silence is a weak witness: see Check.RequireReply and Check.Warnings.
package udpcheck
