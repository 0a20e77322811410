package httpcheck

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/certtest"
	"github.com/lbd-project/lbd/internal/checktest"
)

// TestTLSBroken has each way in which a server's TLS can be wrong, seen by a check
// of HTTP/1.1 and one of HTTP/2.
func TestTLSBroken(t *testing.T) {
	ca := certtest.New(t)
	names := []string{"a.example"}
	good := ca.Issue(t, certtest.Spec{Names: names})
	mine := ca.Issue(t, certtest.Spec{})
	past := time.Now().Add(-time.Hour)
	with := func(cert certtest.Cert, change func(*tls.Config)) func(net.Listener) {
		return func(ln net.Listener) {
			c := &tls.Config{Certificates: []tls.Certificate{cert.TLS}, NextProtos: []string{"h2", "http/1.1"}}
			if change != nil {
				change(c)
			}
			s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), TLSConfig: c, ErrorLog: quiet}
			go s.ServeTLS(ln, "", "")
			t.Cleanup(func() { s.Close() })
		}
	}
	answering := func(answer func(net.Conn)) func(net.Listener) {
		return func(ln net.Listener) { checktest.Serve(t, ln, answer) }
	}
	demand := func(c *tls.Config) { c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool() }
	for _, tt := range []struct {
		name   string
		server func(net.Listener)
		o      *tlsopt.Options
		want   string // or its begin before "*"
	}{
		{"fine", with(good, nil), &tlsopt.Options{}, ""},
		{"expired", with(ca.Issue(t, certtest.Spec{Names: names, NotBefore: past.Add(-time.Hour), NotAfter: past}), nil), &tlsopt.Options{}, "TLS handshake: the certificate expired on *"},
		{"wrong name", with(ca.Issue(t, certtest.Spec{Names: []string{"b.example"}}), nil), &tlsopt.Options{}, "TLS handshake: the certificate is for b.example, not for a.example"},
		{"stranger", with(certtest.New(t).Issue(t, certtest.Spec{Names: names}), nil), &tlsopt.Options{}, "TLS handshake: the certificate is not trusted: its issuer is unknown*"},
		{"stranger, not verified", with(certtest.SelfSigned(t, certtest.Spec{}), nil), &tlsopt.Options{SkipVerify: true}, ""},
		{"too old", with(good, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), &tlsopt.Options{MinVersion: tls.VersionTLS13}, "TLS handshake: the server refuses: no TLS version in common*"},
		{"client certificate", with(good, demand), &tlsopt.Options{ClientCert: mine.CertPEM, ClientKey: mine.KeyPEM}, ""},
		{"no client certificate", with(good, demand), &tlsopt.Options{}, "GET /: TLS: the server refuses: it demands a client certificate*"},
		{"plaintext", answering(checktest.Say("HTTP/1.1 400 Bad Request\r\n\r\n")), &tlsopt.Options{}, "TLS handshake: the server does not speak TLS: *"},
		{"truncated", answering(func(c net.Conn) { c.Read(make([]byte, 16<<10)); c.Write([]byte{22, 3, 3, 0, 80, 2, 0}) }), &tlsopt.Options{}, "TLS handshake: the server closed the connection before it was done"},
		{"long chain", with(ca.Intermediate(t, certtest.Spec{Padding: 30 << 10}).Issue(t, certtest.Spec{Names: names, Padding: 30 << 10}), nil), &tlsopt.Options{}, ""},
	} {
		ln := checktest.Listen(t)
		tt.server(ln)
		tt.o.CA = ca.PEM()
		for _, version := range []string{Version11, Version2} {
			_, err := run(t, Check{Version: version, Host: "a.example:8443", TLS: tt.o}, ln.Addr().String())
			if !checktest.Says(err, tt.want) {
				t.Errorf("%s, HTTP/%s: want %q, got %q", tt.name, version, tt.want, checktest.Text(err))
			}
		}
	}
}
