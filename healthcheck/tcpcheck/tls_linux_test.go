package tcpcheck

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/certtest"
	"github.com/lbd-project/lbd/internal/checktest"
)

// secure has answer speak TLS.
func secure(config *tls.Config, answer func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) { answer(tls.Server(c, config)) }
}

// TestTLS has a handshake alone and one with steps, and what can be wrong with
// the server's side of it. A want that ends in "*" is the begin of the error.
func TestTLS(t *testing.T) {
	const short, long = 300 * time.Millisecond, 20 * time.Second
	ca, stranger := certtest.New(t), certtest.New(t)
	names := []string{"a.example", "127.0.0.1"}
	good := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, certtest.Spec{Names: names}).TLS}}
	with := func(c certtest.Cert) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c.TLS}} }
	past := time.Now().Add(-time.Hour)
	expired := with(ca.Issue(t, certtest.Spec{Names: names, NotBefore: past.Add(-time.Hour), NotAfter: past}))
	old := good.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	demanding := good.Clone()
	demanding.ClientAuth, demanding.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	mine := ca.Issue(t, certtest.Spec{})
	redis := lines("", map[string]string{"PING": "+PONG\n"})
	tests := []struct {
		name    string
		answer  func(net.Conn)
		options *tlsopt.Options // CA is ca's
		steps   []Step
		timeout time.Duration
		want    string
	}{
		{"handshake", secure(good, checktest.Hang), &tlsopt.Options{}, nil, long, ""},
		{"steps", secure(good, redis), &tlsopt.Options{ServerName: "a.example"}, ping, long, ""},
		{"client certificate", secure(demanding, checktest.Hang), &tlsopt.Options{ClientCert: mine.CertPEM, ClientKey: mine.KeyPEM}, nil, long, ""},
		{"not, keeps open", secure(good, checktest.Say("fine")), &tlsopt.Options{}, []Step{{Expect: not(text("bad"))}}, long, ""},

		{"wrong answer", secure(good, lines("", map[string]string{"PING": "-ERR\n"})), &tlsopt.Options{}, ping, long, `step 1: expect text at the start "+PONG\n": got "-ERR\n"`},
		{"closes after the handshake", secure(good, checktest.SayAndClose("")), &tlsopt.Options{}, ping, long, `step 1: expect text at the start "+PONG\n": got nothing: the target closed the connection: EOF`},
		{"hangs after the handshake", secure(good, checktest.Hang), &tlsopt.Options{}, ping, short, `step 1: expect text at the start "+PONG\n": got nothing: no answer in time: context deadline exceeded`},
		{"expired", secure(expired, checktest.Hang), &tlsopt.Options{}, nil, long, "TLS handshake: the certificate expired on *"},
		{"wrong name", secure(good, checktest.Hang), &tlsopt.Options{ServerName: "b.example"}, nil, long, "TLS handshake: the certificate is for a.example, 127.0.0.1, not for b.example"},
		{"unknown issuer", secure(with(stranger.Issue(t, certtest.Spec{Names: names})), checktest.Hang), &tlsopt.Options{}, nil, long, "TLS handshake: the certificate is not trusted: its issuer is unknown (CN=test root)"},
		{"signed by itself", secure(with(certtest.SelfSigned(t, certtest.Spec{Names: names})), checktest.Hang), &tlsopt.Options{}, nil, long, "TLS handshake: the certificate is not trusted: it is signed by itself *"},
		{"too old", secure(old, checktest.Hang), &tlsopt.Options{}, nil, long, "TLS handshake: the server refuses: no TLS version in common (protocol version not supported)"},
		{"no TLS", checktest.Say("220 hi\r\n"), &tlsopt.Options{}, nil, long, `TLS handshake: the server does not speak TLS: it answers "220 h"`},
		{"handshake hangs", checktest.Hang, &tlsopt.Options{}, nil, short, "TLS handshake: *"},
		{"handshake breaks off", checktest.Close, &tlsopt.Options{}, nil, long, "TLS handshake: the server closed the connection before it was done"},
		// In TLS 1.3 the handshake is over for the client before the server has
		// seen what is missing.
		{"demands a client certificate", secure(demanding, checktest.Hang), &tlsopt.Options{}, nil, long, "TLS: the server refuses: it demands a client certificate (certificate required)"},
		{"demands a client certificate, steps", secure(demanding, redis), &tlsopt.Options{}, ping, long, `step 1: expect text at the start "+PONG\n": got nothing: TLS: the server refuses: it demands a client certificate (certificate required)`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			to := checktest.Serve(t, checktest.Listen(t), tt.answer)
			tt.options.CA = ca.PEM()
			_, err := checktest.RunUntil(t, Check{TLS: tt.options, Steps: tt.steps}, healthcheck.Env{}, to, tt.timeout, tt.want)
			if !checktest.Says(err, tt.want) {
				t.Errorf("want %q, got %q", tt.want, checktest.Text(err))
			}
		})
	}
}

// TestTLSWarning hands on that the certificate expires soon, of a check that
// fails as well.
func TestTLSWarning(t *testing.T) {
	ca := certtest.New(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, certtest.Spec{Names: []string{"127.0.0.1"}}).TLS}}
	to := checktest.Serve(t, checktest.Listen(t), secure(config, checktest.Say("x")))
	o := &tlsopt.Options{CA: ca.PEM(), WarnBefore: 240 * time.Hour}
	for _, steps := range [][]Step{nil, {{Expect: expectStart("y")}}} {
		r, err := checktest.Run(t, Check{TLS: o, Steps: steps}, healthcheck.Env{}, to, 20*time.Second)
		if (err == nil) != (steps == nil) || !strings.HasPrefix(r.Warning, "the certificate expires") {
			t.Errorf("steps %v: want a warning, got %+v, %v", steps, r, err)
		}
	}
}

// recorder keeps what is read.
type recorder struct {
	net.Conn
	data []byte
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.data = append(r.data, p[:n]...)
	return n, err
}

// alert reports whether the last record is an alert: crypto/tls takes the end of
// the stream for close_notify. TLS 1.3 hides the type of a record, but nothing
// else is as short as 2 bytes, their type and a tag of 16 bytes.
func (r *recorder) alert() bool {
	kind, size := byte(0), 0
	for rest := r.data; len(rest) >= 5; {
		kind, size = rest[0], int(rest[3])<<8|int(rest[4])
		rest = rest[min(len(rest), 5+size):]
	}
	return kind == 21 || kind == 23 && size == 19
}

// TestTLSPoliteClose has the server see close_notify, and then a FIN rather than
// a RST, after a handshake alone and after steps, in both versions of TLS and
// with a long chain: a session ticket is on its way to the client then.
func TestTLSPoliteClose(t *testing.T) {
	ca := certtest.New(t)
	chain := ca
	for range 5 {
		chain = chain.Intermediate(t, certtest.Spec{CommonName: "between", NotAfter: time.Now().Add(time.Hour)})
	}
	cert := chain.Issue(t, certtest.Spec{Names: []string{"127.0.0.1"}, Padding: 8000}).TLS
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for name, steps := range map[string][]Step{"handshake": nil, "passes": {{Expect: text("hi")}}, "fails": {{Expect: expectStart("no")}}} {
			type ending struct {
				tls, tcp error
				alert    bool
			}
			ends := make(chan ending, 1)
			config := &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: version}
			to := checktest.Serve(t, checktest.Listen(t), func(c net.Conn) {
				heard := &recorder{Conn: c}
				s := tls.Server(heard, config)
				if steps != nil {
					io.WriteString(s, "hi"+strings.Repeat(" and more", 1000))
				}
				var e ending
				_, e.tls = s.Read(make([]byte, 1))
				_, e.tcp = c.Read(make([]byte, 1))
				e.alert = heard.alert()
				ends <- e
			})
			o := &tlsopt.Options{CA: ca.PEM()}
			for range 20 {
				if _, err := checktest.Run(t, Check{TLS: o, Steps: steps}, healthcheck.Env{}, to, 20*time.Second); (err != nil) != (name == "fails") {
					t.Fatalf("%s: got %v", name, err)
				}
				if e := <-ends; e.tls != io.EOF || !errors.Is(e.tcp, io.EOF) || !e.alert {
					t.Errorf("%s over %s: want close_notify and FIN, the server got %+v", name, tls.VersionName(version), e)
				}
			}
		}
	}
}

// TestTLSLeaks makes a thousand checks whose handshake or steps fail.
func TestTLSLeaks(t *testing.T) {
	ca := certtest.New(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, certtest.Spec{Names: []string{"127.0.0.1"}}).TLS}}
	o := &tlsopt.Options{CA: ca.PEM()}
	for name, answer := range map[string]func(net.Conn){
		"not TLS": checktest.Say("220 hi\r\n"),
		"hangs":   checktest.Hang,
		"wrong":   secure(config, checktest.Say("-ERR\n")),
	} {
		to := checktest.Serve(t, checktest.Listen(t), answer)
		timeout := 30 * time.Second
		if name == "hangs" {
			timeout = 20 * time.Millisecond
		}
		checktest.Leaks(t, 1000, func() {
			if _, err := checktest.Run(t, Check{TLS: o, Steps: ping}, healthcheck.Env{}, to, timeout); err == nil {
				t.Errorf("%s: want a failure", name)
			}
		})
	}
}
