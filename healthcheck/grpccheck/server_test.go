package grpccheck

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/certtest"
	"github.com/lbd-project/lbd/internal/checktest"
)

// serveOn runs a server of HTTP/2 on ln; with cert, over TLS.
func serveOn(t testing.TB, ln net.Listener, h http.HandlerFunc, cert *certtest.Cert) {
	s := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	if cert != nil {
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert.TLS}}
		go s.ServeTLS(ln, "", "")
	} else {
		go s.Serve(ln)
	}
	t.Cleanup(func() { s.Close() })
}

// serve is serveOn on a port of its own.
func serve(t testing.TB, h http.HandlerFunc, cert *certtest.Cert) string {
	t.Helper()
	ln := checktest.Listen(t)
	serveOn(t, ln, h, cert)
	return ln.Addr().String()
}

// answer answers a call with bytes as the body, and a trailer of names and
// values.
func answer(body string, trailer ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/grpc+proto")
		io.WriteString(w, body)
		w.(http.Flusher).Flush()
		for i := 0; i < len(trailer); i += 2 {
			w.Header().Set(http.TrailerPrefix+trailer[i], trailer[i+1])
		}
	}
}

// trailersOnly answers without a body.
func trailersOnly(code, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", code)
		if message != "" {
			w.Header().Set("Grpc-Message", message)
		}
	}
}

// serving is the message SERVING in its frame.
const serving = "\x00\x00\x00\x00\x02\x08\x01"

// run makes one check in at most 10 s.
func run(t testing.TB, c Check, to string) (healthcheck.Result, error) {
	t.Helper()
	return checktest.Run(t, c, healthcheck.Env{}, to, 10*time.Second)
}

// secure returns an authority's TLS options and a certificate for a.example.
func secure(t testing.TB) (*tlsopt.Options, *certtest.Cert) {
	t.Helper()
	ca := certtest.New(t)
	cert := ca.Issue(t, certtest.Spec{Names: []string{"a.example", "127.0.0.1"}})
	return &tlsopt.Options{CA: ca.PEM(), WarnBefore: 48 * time.Hour}, &cert
}
