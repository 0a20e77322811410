package dnscheck

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// longest is a name of 255 bytes.
var longest = strings.Repeat("abcdefghijklmno.", 15) + "abcdefghijklm."

// zone is what the tests' server knows, by name and type.
var zone = map[string][]string{
	". SOA":                                     {". 60 IN SOA ns. admin. 1 2 3 4 5"},
	"example.org. A":                            {"example.org. 60 IN A 192.0.2.1", "example.org. 60 IN A 192.0.2.2"},
	"example.org. AAAA":                         {"example.org. 60 IN AAAA 2001:db8::1"},
	"example.org. NS":                           {"example.org. 60 IN NS ns1.example.org.", "example.org. 60 IN NS ns2.example.org."},
	"example.org. MX":                           {"example.org. 60 IN MX 10 mail.example.org."},
	"example.org. TXT":                          {`example.org. 60 IN TXT "v=spf1 " "-all"`},
	"example.org. CAA":                          {`example.org. 60 IN CAA 0 issue "ca.example.net"`},
	"example.org. ANY":                          {"example.org. 60 IN A 192.0.2.1", "example.org. 60 IN MX 10 mail.example.org."},
	"example.org. TYPE65399":                    {`example.org. 60 IN TYPE65399 \# 2 abcd`},
	"www.example.org. A":                        {"www.example.org. 60 IN CNAME example.org.", "example.org. 60 IN A 192.0.2.1"},
	"www.example.org. CNAME":                    {"www.example.org. 60 IN CNAME example.org."},
	"_sip._udp.example.org. SRV":                {"_sip._udp.example.org. 60 IN SRV 0 5 5060 sip.example.org."},
	"1.2.0.192.in-addr.arpa. PTR":               {"1.2.0.192.in-addr.arpa. 60 IN PTR example.org."},
	strings.Repeat("a", 63) + ".example.org. A": {strings.Repeat("a", 63) + ".example.org. 60 IN A 192.0.2.63"},
	longest + " A":                              {longest + " 60 IN A 192.0.2.255"},
}

// serveZone answers from zone, as a server with nothing else would.
func serveZone(w dns.ResponseWriter, ask *dns.Msg) {
	r := new(dns.Msg)
	r.SetReply(ask)
	r.Compress = true
	q := ask.Question[0]
	records, ok := zone[strings.ToLower(q.Name)+" "+dns.Type(q.Qtype).String()]
	switch {
	case strings.HasPrefix(q.Name, "refused."):
		r.Rcode = dns.RcodeRefused
	case strings.HasPrefix(q.Name, "big."):
		// 100 records, for which UDP is too small.
		for i := range 100 {
			records = append(records, fmt.Sprintf("%s 60 IN A 192.0.2.%d", q.Name, i))
		}
	case !ok:
		r.Rcode = dns.RcodeNameError
	}
	for _, s := range records {
		rr, err := dns.NewRR(s)
		if err != nil {
			panic(err)
		}
		r.Answer = append(r.Answer, rr)
	}
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		r.Truncate(dns.MinMsgSize)
	}
	w.WriteMsg(r)
}

// serve runs a server on both transports until the test ends. Either of them may
// be nil.
func serve(t testing.TB, pc net.PacketConn, ln net.Listener, h dns.HandlerFunc) {
	t.Helper()
	run := func(s *dns.Server) {
		ready := make(chan struct{})
		s.Handler, s.NotifyStartedFunc = h, func() { close(ready) }
		done := make(chan error, 1)
		go func() { done <- s.ActivateAndServe() }()
		t.Cleanup(func() {
			s.Shutdown()
			<-done
		})
		select {
		case <-ready:
		case err := <-done:
			done <- err
			t.Fatalf("serve: %v", err)
		}
	}
	if pc != nil {
		run(&dns.Server{PacketConn: pc})
	}
	if ln != nil {
		run(&dns.Server{Listener: ln})
	}
}

// both returns sockets of both transports on one port of an address of this host.
func both(t testing.TB, ip string) (net.PacketConn, net.Listener, netip.AddrPort) {
	t.Helper()
	for range 20 {
		ln, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
		if err != nil {
			t.Fatal(err)
		}
		pc, err := net.ListenPacket("udp", ln.Addr().String())
		if err != nil { // taken by another program
			ln.Close()
			continue
		}
		t.Cleanup(func() { ln.Close(); pc.Close() })
		return pc, ln, ln.Addr().(*net.TCPAddr).AddrPort()
	}
	t.Fatal("no port is free for both transports")
	return nil, nil, netip.AddrPort{}
}

// script answers each datagram with messages made from it, one after the other.
func script(t testing.TB, pc net.PacketConn, replies func(ask []byte) [][]byte) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1<<16)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			for _, r := range replies(b[:n]) {
				pc.WriteTo(r, from)
			}
		}
	}()
	t.Cleanup(func() { pc.Close(); <-done })
}

// scriptTCP gives each connection to talk, and closes it then.
func scriptTCP(t testing.TB, ln net.Listener, talk func(c net.Conn)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(10 * time.Second))
			talk(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
}

// readQuery reads a query from a connection, with the length before it.
func readQuery(c net.Conn) []byte {
	b := make([]byte, 2)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil
	}
	ask := make([]byte, int(b[0])<<8|int(b[1]))
	if _, err := io.ReadFull(c, ask); err != nil {
		return nil
	}
	return ask
}

// goodReply returns a reply to ask with 192.0.2.1.
func goodReply(ask []byte) []byte {
	var m dns.Msg
	if err := m.Unpack(ask); err != nil {
		panic(err)
	}
	r := new(dns.Msg)
	r.SetReply(&m)
	r.Answer = []dns.RR{&dns.A{
		Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
		A:   net.IPv4(192, 0, 2, 1),
	}}
	b, err := r.Pack()
	if err != nil {
		panic(err)
	}
	return b
}
