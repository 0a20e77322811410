// Package tcpcheck probes servers that speak a protocol of lines or bytes over
// TCP, with or without TLS: it sends, and looks for what it expects.
//
//	m := tcpcheck.Check{Steps: []tcpcheck.Step{
//		{Send: []byte("PING\r\n"), Expect: expect.Expect{Kind: expect.Text, Value: "+PONG", Start: true}},
//		{Send: []byte("QUIT\r\n")},
//	}}
//
// Whether a server takes connections at all is healthcheck.TCP's to say, which
// costs less and leaves nothing behind. A Check without anything says it, too, to
// servers that complain of a connection that is reset.
package tcpcheck
