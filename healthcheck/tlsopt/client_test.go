package tlsopt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/certtest"
	"github.com/lbd-project/lbd/internal/checktest"
)

// serve answers each connection with fn until the test ends, and returns the
// address.
func serve(t *testing.T, fn func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(time.Minute))
				fn(c)
			}()
		}
	}()
	return ln.Addr().String()
}

// handshake is the answer of a TLS server.
func handshake(config *tls.Config) func(net.Conn) {
	return func(c net.Conn) {
		s := tls.Server(c, config)
		if s.Handshake() == nil {
			io.Copy(io.Discard, s)
		}
	}
}

// dial makes a handshake and one read, as a check would.
func dial(t *testing.T, to string, o *Options, host string) (tls.ConnectionState, error) {
	t.Helper()
	config, err := o.Config(host)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := net.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c, err := Client(ctx, conn, config)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	state := c.ConnectionState()
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err = c.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
		err = nil
	}
	return state, Explain(err)
}

// TestBroken has everything that can be wrong with a server's TLS, in words for
// people.
func TestBroken(t *testing.T) {
	ca, stranger := certtest.New(t), certtest.New(t)
	day := 24 * time.Hour
	good := ca.Issue(t, certtest.Spec{Names: []string{"a.example", "127.0.0.1"}}).TLS
	config := func(cert tls.Certificate) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{cert}}
	}
	demanding := config(good)
	demanding.ClientAuth, demanding.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	demanding12 := demanding.Clone()
	demanding12.MaxVersion = tls.VersionTLS12
	old := config(good)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	h2 := config(good)
	h2.NextProtos = []string{"h2"}
	mine := ca.Issue(t, certtest.Spec{})
	theirs := stranger.Issue(t, certtest.Spec{})
	many := make([]string, 200)
	for i := range many {
		many[i] = strings.Repeat("x", 60) + ".example"
	}
	past := time.Now().Add(-day)
	tests := []struct {
		name   string
		answer func(net.Conn)
		o      *Options // CA is ca's
		want   string   // the error, or its begin before "*"; empty for none
	}{
		{"fine", handshake(config(good)), &Options{}, ""},
		{"expired", handshake(config(ca.Issue(t, certtest.Spec{Names: []string{"a.example"}, NotBefore: past.Add(-day), NotAfter: past}).TLS)), &Options{}, "TLS handshake: the certificate expired on " + past.UTC().Format("2006-01-02 15:04 MST")},
		{"not yet", handshake(config(ca.Issue(t, certtest.Spec{Names: []string{"a.example"}, NotBefore: time.Now().Add(day), NotAfter: time.Now().Add(2 * day)}).TLS)), &Options{}, "TLS handshake: the certificate is not valid before *"},
		{"wrong name", handshake(config(good)), &Options{ServerName: "b.example"}, "TLS handshake: the certificate is for a.example, 127.0.0.1, not for b.example"},
		{"wrong address", handshake(config(good)), &Options{ServerName: "127.0.0.2"}, "TLS handshake: the certificate is for a.example, 127.0.0.1, not for 127.0.0.2"},
		{"many names", handshake(config(ca.Issue(t, certtest.Spec{Names: many}).TLS)), &Options{}, "TLS handshake: the certificate is for *"},
		{"no name", handshake(config(ca.Issue(t, certtest.Spec{CommonName: "a.example"}).TLS)), &Options{}, "TLS handshake: the certificate is for no name at all, not for a.example"},
		{"unknown issuer", handshake(config(stranger.Issue(t, certtest.Spec{Names: []string{"a.example"}}).TLS)), &Options{}, "TLS handshake: the certificate is not trusted: its issuer is unknown (CN=test root)"},
		{"self-signed", handshake(config(certtest.SelfSigned(t, certtest.Spec{CommonName: "a\x1b[31m", Names: []string{"a.example"}}).TLS)), &Options{}, "TLS handshake: the certificate is not trusted: it is signed by itself (CN=a?[31m)"},
		{"not for servers", handshake(config(ca.Issue(t, certtest.Spec{Names: []string{"a.example"}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}).TLS)), &Options{}, "TLS handshake: the certificate is not for servers (extended key usage)"},
		{"self-signed, not verified", handshake(config(certtest.SelfSigned(t, certtest.Spec{}).TLS)), &Options{SkipVerify: true}, ""},
		{"plaintext", func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n"); io.Copy(io.Discard, c) }, &Options{}, `TLS handshake: the server does not speak TLS: it answers "HTTP/"`},
		{"garbage", func(c net.Conn) { c.Write(make([]byte, 100)); io.Copy(io.Discard, c) }, &Options{}, `TLS handshake: the server does not speak TLS: it answers "?????"`},
		{"too old", handshake(old), &Options{}, "TLS handshake: the server refuses: no TLS version in common (protocol version not supported)"},
		{"old allowed", handshake(old), &Options{MinVersion: tls.VersionTLS10}, ""},
		{"minimum too high", handshake(demanding12), &Options{MinVersion: tls.VersionTLS13}, "TLS handshake: the server refuses: no TLS version in common (protocol version not supported)"},
		{"chooses what was not offered", chooseSSL3, &Options{}, "TLS handshake: the server wants SSLv3, which is too old"},
		{"no client certificate", handshake(demanding), &Options{}, "the server refuses: it demands a client certificate (certificate required)"},
		{"no client certificate, 1.2", handshake(demanding12), &Options{}, "TLS handshake: the server refuses: no cipher in common, or it demands a client certificate (handshake failure)"},
		{"strange client certificate", handshake(demanding), &Options{ClientCert: theirs.CertPEM, ClientKey: theirs.KeyPEM}, "the server refuses: it does not trust the issuer of the client certificate (unknown certificate authority)"},
		{"client certificate", handshake(demanding), &Options{ClientCert: mine.CertPEM, ClientKey: mine.KeyPEM}, ""},
		{"truncated", func(c net.Conn) { readSome(c); c.Write([]byte{22, 3, 3, 0, 80, 2, 0, 0, 76, 3, 3}) }, &Options{}, "TLS handshake: the server closed the connection before it was done"},
		{"closes at once", func(c net.Conn) { readSome(c) }, &Options{}, "TLS handshake: the server closed the connection before it was done"},
		{"resets", func(c net.Conn) { readSome(c); c.(*net.TCPConn).SetLinger(0) }, &Options{}, "TLS handshake: the server closed the connection before it was done"},
		{"no protocol", handshake(h2), &Options{ALPN: []string{"other"}}, "TLS handshake: the server refuses: no ALPN protocol in common (no application protocol)"},
		{"protocol", handshake(h2), &Options{ALPN: []string{"h2"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.o.CA = ca.PEM()
			_, err := dial(t, serve(t, tt.answer), tt.o, "a.example")
			text := checktest.Text(err)
			if !checktest.Says(err, tt.want) {
				t.Errorf("want %q, got %q", tt.want, text)
			}
			if len(text) > 400 {
				t.Errorf("the server makes an error of %d bytes", len(text))
			}
		})
	}
}

// readSome takes the client's first message, so that closing does not reset.
func readSome(c net.Conn) { c.Read(make([]byte, 16<<10)) }

// chooseSSL3 answers with a ServerHello of SSL 3.0, which no client offers.
func chooseSSL3(c net.Conn) {
	readSome(c)
	hello := append([]byte{2, 0, 0, 38, 3, 0}, make([]byte, 32)...) // version, random
	hello = append(hello, 0, 0, 0x2f, 0)                            // no session, cipher, no compression
	c.Write(append([]byte{22, 3, 3, 0, byte(len(hello))}, hello...))
	io.Copy(io.Discard, c)
}

// TestErrorsStay has the original errors below the texts.
func TestErrorsStay(t *testing.T) {
	_, err := dial(t, serve(t, handshake(&tls.Config{Certificates: []tls.Certificate{certtest.SelfSigned(t, certtest.Spec{Names: []string{"a.example"}}).TLS}})), &Options{}, "a.example")
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		t.Errorf("want UnknownAuthorityError below, got %v", err)
	}
	if got := Explain(err); got != err {
		t.Errorf("explained twice: %v", got)
	}
	if got := Explain(io.EOF); got != io.EOF {
		t.Errorf("want io.EOF as it is, got %v", got)
	}
}

func TestHangs(t *testing.T) {
	to := serve(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	config, err := (&Options{}).Config("a.example")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err = Client(ctx, conn, config)
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "TLS handshake: no answer in time: context deadline exceeded" {
		t.Errorf("want the deadline, got %v", err)
	}
}
