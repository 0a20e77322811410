package e2e

import (
	"bufio"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
)

// speaker is a program on a real server that is asked by checks of a protocol.
type speaker struct {
	// how is right, wrong or silent.
	how atomic.Value
}

// speakers start what speaks a protocol.
var speakers = map[string]func(*script, *Server, *speaker) error{
	"dns":   speakDNS,
	"grpc":  speakGRPC,
	"https": speakHTTPS,
	"smtp":  speakSMTP,
	"udp":   speakUDP,
}

func cmdSpeak(s *script, args []string) (string, error) {
	if len(args) != 3 || speakers[args[1]] == nil || !slices.Contains([]string{"right", "wrong", "silent"}, args[2]) {
		return "", usage("speak NAME dns|grpc|https|smtp|udp right|wrong|silent")
	}
	srv, key := s.lab.Server(args[0]), args[0]+" "+args[1]
	sp := s.speakers[key]
	if sp == nil {
		sp = new(speaker)
	}
	sp.how.Store(args[2])
	if s.speakers[key] != nil {
		return "", nil
	}
	s.speakers[key] = sp
	// It ends with its socket, which the namespace closes.
	return "", speakers[args[1]](s, srv, sp)
}

// say returns what is right or wrong, as it is told to be; nothing when silent.
func (sp *speaker) say(right, wrong string) string {
	switch sp.how.Load() {
	case "right":
		return right
	case "wrong":
		return wrong
	}
	return ""
}

func speakUDP(_ *script, srv *Server, sp *speaker) error {
	srv.datagrams(netip.AddrPortFrom(srv.V4, 7), func([]byte) string { return sp.say("pong", "pang") })
	return nil
}

// speakDNS answers with one address, RFC 1035, section 4.1.
func speakDNS(_ *script, srv *Server, sp *speaker) error {
	srv.datagrams(netip.AddrPortFrom(srv.V4, 5353), func(ask []byte) string {
		addr := sp.say("\xc0\x00\x02\x01", "\xc0\x00\x02\x02")
		if len(ask) < 17 || addr == "" {
			return ""
		}
		end := 12
		for end < len(ask) && ask[end] != 0 {
			end += 1 + int(ask[end])
		}
		if end+5 > len(ask) {
			return ""
		}
		return string(ask[:2]) + "\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00" + string(ask[12:end+5]) +
			"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04" + addr
	})
	return nil
}

func speakSMTP(_ *script, srv *Server, sp *speaker) error {
	accept(srv.NS.Listen("tcp", ":25"), func(c net.Conn) {
		io.WriteString(c, sp.say("220 mx.example ESMTP\r\n", "554 not today\r\n"))
		for lines := bufio.NewScanner(c); lines.Scan(); {
			if lines.Text() == "QUIT" {
				io.WriteString(c, "221 bye\r\n")
				return
			}
			io.WriteString(c, sp.say("250 mx.example\r\n", "500 what\r\n"))
		}
	})
	return nil
}

// speakGRPC answers as the health service of gRPC, of which SERVING is 1 and
// NOT_SERVING 2.
func speakGRPC(_ *script, srv *Server, sp *speaker) error {
	h := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		a := sp.say("\x00\x00\x00\x00\x02\x08\x01", "\x00\x00\x00\x00\x02\x08\x02")
		if a == "" {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		io.WriteString(w, a)
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	}
	hs := &http.Server{Handler: http.HandlerFunc(h), Protocols: new(http.Protocols)}
	hs.Protocols.SetUnencryptedHTTP2(true)
	go hs.Serve(srv.NS.Listen("tcp", ":50051"))
	return nil
}

// speakHTTPS has a certificate for example.com, and writes it to ca.pem.
func speakHTTPS(s *script, srv *Server, sp *speaker) error {
	hs := &httptest.Server{Listener: srv.NS.Listen("tcp", ":443"), Config: &http.Server{}}
	hs.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch sp.how.Load() {
		case "wrong":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "silent":
			<-r.Context().Done()
		}
	})
	hs.StartTLS()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hs.Certificate().Raw})
	return os.WriteFile(s.path("ca.pem"), ca, 0o644)
}
