package httpcheck

import (
	"bufio"
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

// raw answers each connection with fn until the test ends.
func raw(t testing.TB, fn func(net.Conn)) string {
	t.Helper()
	return checktest.Serve(t, checktest.Listen(t), fn)
}

// says reads a request and answers with a text, whatever it is.
func says(answer string) func(net.Conn) {
	return func(c net.Conn) {
		readRequest(c)
		io.WriteString(c, answer)
	}
}

// readRequest takes a request to its end, so that closing does not reset.
func readRequest(c net.Conn) {
	if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
		io.Copy(io.Discard, r.Body)
	}
}

// forever repeats a text until the client has enough.
func forever(begin, again string) func(net.Conn) {
	return func(c net.Conn) {
		readRequest(c)
		_, err := io.WriteString(c, begin)
		for err == nil {
			_, err = io.WriteString(c, again)
		}
	}
}

// flood is like forever and takes everything that comes.
func flood(begin, again string) func(net.Conn) {
	return func(c net.Conn) {
		go io.Copy(io.Discard, c)
		_, err := io.WriteString(c, begin)
		for err == nil {
			_, err = io.WriteString(c, again)
		}
	}
}

// says2 answers in bytes of HTTP/2 once the client has asked.
func says2(answer string) func(net.Conn) {
	return func(c net.Conn) {
		r := readRequest2(c)
		io.WriteString(c, answer)
		io.Copy(io.Discard, r)
	}
}

// readRequest2 is readRequest for HTTP/2 and a request without a body.
func readRequest2(c net.Conn) *bufio.Reader {
	r := bufio.NewReader(c)
	r.Discard(24) // the preface, RFC 9113, section 3.4
	for {
		var head [9]byte // section 4.1
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return r
		}
		r.Discard(int(head[0])<<16 | int(head[1])<<8 | int(head[2]))
		if head[3] == 1 { // HEADERS
			return r
		}
	}
}

// quiet is for servers that are not well treated.
var quiet = log.New(io.Discard, "", 0)

// serve runs a server of net/http in all its versions; with cert, over TLS.
func serve(t testing.TB, h http.HandlerFunc, cert *certtest.Cert) string {
	t.Helper()
	ln := checktest.Listen(t)
	serveOn(t, ln, h, cert)
	return ln.Addr().String()
}

func serveOn(t testing.TB, ln net.Listener, h http.HandlerFunc, cert *certtest.Cert) {
	s := &http.Server{Handler: h, ErrorLog: quiet, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	if cert != nil {
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert.TLS}, MinVersion: tls.VersionTLS12}
		go s.ServeTLS(ln, "", "")
	} else {
		go s.Serve(ln)
	}
	t.Cleanup(func() { s.Close() })
}

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
	return &tlsopt.Options{CA: ca.PEM()}, &cert
}

// ok answers with status 200.
func ok(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }
