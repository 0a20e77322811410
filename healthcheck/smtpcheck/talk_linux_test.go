package smtpcheck

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/certtest"
	"github.com/lbd-project/lbd/internal/checktest"
)

const short, long = 200 * time.Millisecond, 20 * time.Second

// TestTalk has whole conversations: what the server heard, and the outcome. A
// server that is not as it should be hears QUIT if it listens to anything.
func TestTalk(t *testing.T) {
	ca := certtest.New(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, certtest.Spec{Names: []string{"127.0.0.1"}}).TLS}}
	o := &tlsopt.Options{CA: ca.PEM()}
	start := Check{TLS: o, StartTLS: true}
	tests := []struct {
		name    string
		server  *server
		check   Check
		timeout time.Duration
		heard   string
		want    string
	}{
		{"healthy", mail(), Check{Name: "lb.example"}, long, "EHLO lb.example | QUIT", ""},
		{"long greeting", mail("greeting", "220-mx\r\n220-no spam\r\n220 please\r\n"), Check{}, long, "EHLO localhost | QUIT", ""},
		{"knows HELO alone", mail("EHLO", "502 what?\r\n"), Check{}, long, "EHLO localhost | HELO localhost | QUIT", ""},
		{"STARTTLS", mail().over(config), start, long, "EHLO localhost | STARTTLS | TLS | EHLO localhost | QUIT", ""},
		{"TLS", mail().over(config).fromStart(), Check{TLS: o}, long, "EHLO localhost | QUIT", ""},

		{"refuses all", mail("greeting", "554 go away\r\n"), Check{}, long, "QUIT", `greeting: want 220, got "554 go away"`},
		{"is busy", mail("greeting", "421 too many connections\r\n"), Check{}, long, "QUIT", `greeting: want 220, got "421 too many connections"`},
		{"refuses the name", mail("EHLO", "550-not\r\n550 you\r\n"), Check{}, long, "EHLO localhost | QUIT", `EHLO localhost: want 250, got "550 you"`},
		{"knows neither", mail("EHLO", "500 what?\r\n", "HELO", "502 no\r\n"), Check{}, long, "EHLO localhost | HELO localhost | QUIT", `HELO localhost: want 250, got "502 no"`},
		{"offers no STARTTLS", mail("EHLO", "250 mx\r\n"), start, long, "EHLO localhost | QUIT", "EHLO: the server does not offer STARTTLS"},
		{"HELO has no STARTTLS", mail("EHLO", "502 what?\r\n"), start, long, "EHLO localhost | QUIT", `EHLO localhost: want 250, got "502 what?"`},
		{"has no TLS now", mail("STARTTLS", "454 not now\r\n"), start, long, "EHLO localhost | STARTTLS | QUIT", `STARTTLS: want 220, got "454 not now"`},
		{"goes on in the clear", mail("STARTTLS", "220 go on\r\n250 injected\r\n").over(config), start, long, "EHLO localhost | STARTTLS | no handshake", `the server goes on in the clear after STARTTLS: "250 injected"`},
		{"does not let go", mail("QUIT", "250 stay\r\n"), Check{}, long, "EHLO localhost | QUIT | EOF", `QUIT: want 221, got "250 stay"`},
		{"does not answer QUIT", mail("QUIT", ""), Check{}, short, "", "QUIT: no answer in time: context deadline exceeded"},
		{"does not answer EHLO", mail("EHLO", ""), Check{}, short, "", "EHLO localhost: no answer in time: context deadline exceeded"},
		{"mixes codes", mail("EHLO", "250-a\r\n550 b\r\n"), Check{}, long, "EHLO localhost | EOF", "EHLO localhost: a reply with the codes 250 and 550"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			done := make(chan struct{})
			end := sync.OnceFunc(func() { close(done) })
			to := checktest.Serve(t, checktest.Listen(t), func(c net.Conn) {
				tt.server.serve(c)
				end()
			})
			r, err := checktest.RunUntil(t, tt.check, healthcheck.Env{}, to, tt.timeout, tt.want)
			if got := checktest.Text(err); got != tt.want {
				t.Errorf("want %q, got %q", tt.want, got)
			}
			if ok := strings.HasPrefix(r.Detail, "220 "); ok != (err == nil) {
				t.Errorf("got detail %q with error %v", r.Detail, err)
			}
			<-done
			if got := tt.server.heardAll(); tt.heard != "" && got != tt.heard {
				t.Errorf("want the server to hear %q, got %q", tt.heard, got)
			}
		})
	}
}

// TestHostile has servers that are none. A want that ends in "*" is the begin of
// the error.
func TestHostile(t *testing.T) {
	tests := []struct {
		name    string
		answer  func(net.Conn)
		timeout time.Duration
		want    string
	}{
		{"closes early", checktest.Close, long, "greeting: *"},
		{"closes in the middle", checktest.SayAndClose("220-hello\r\n"), long, "greeting: the reply ends in the middle: unexpected EOF"},
		{"says nothing", checktest.SayAndClose(""), long, "greeting: the target closed the connection: EOF"},
		{"hangs", checktest.Hang, short, "greeting: no answer in time: context deadline exceeded"},
		{"hangs in the middle", checktest.Say("220-hello\r\n"), short, "greeting: no answer in time: context deadline exceeded"},
		{"drips", checktest.Drip(strings.Repeat("220-x\r\n", 1000), 10*time.Millisecond), short, "greeting: no answer in time: context deadline exceeded"},
		{"many lines", checktest.Endless("220-hello\r\n"), long, "greeting: a reply of more than 128 lines"},
		{"one long line", checktest.Endless("220-hello"), long, "greeting: a line of the reply is longer than 2048 bytes: *"},
		{"garbage", checktest.Endless("\x00\xff\r\n"), long, `greeting: not a reply of SMTP: "??"`},
		{"another protocol", checktest.Say("SSH-2.0-x\r\n"), long, `greeting: not a reply of SMTP: "SSH-2.0-x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			to := checktest.Serve(t, checktest.Listen(t), tt.answer)
			_, err := checktest.RunUntil(t, Check{}, healthcheck.Env{}, to, tt.timeout, tt.want)
			if !checktest.Says(err, tt.want) {
				t.Errorf("want %q, got %q", tt.want, checktest.Text(err))
			}
			if timedOut := tt.timeout == short; errors.Is(err, context.DeadlineExceeded) != timedOut {
				t.Errorf("want deadline exceeded %v, got %v", timedOut, err)
			}
		})
	}
}

// TestDrip has a whole conversation byte by byte.
func TestDrip(t *testing.T) {
	s := mail()
	to := checktest.Serve(t, checktest.Listen(t), func(c net.Conn) { s.serve(slowly{c}) })
	if _, err := checktest.Run(t, Check{}, healthcheck.Env{}, to, long); err != nil {
		t.Error(err)
	}
}

// slowly writes single bytes.
type slowly struct{ net.Conn }

func (c slowly) Write(p []byte) (int, error) {
	for i := range p {
		time.Sleep(100 * time.Microsecond)
		if n, err := c.Conn.Write(p[i : i+1]); err != nil {
			return i + n, err
		}
	}
	return len(p), nil
}

// TestTLS has a server whose TLS is broken, from the start and by STARTTLS. What
// else can be broken is for the tests of tlsopt.
func TestTLS(t *testing.T) {
	ca, stranger := certtest.New(t), certtest.New(t)
	names := []string{"127.0.0.1"}
	with := func(c certtest.Cert) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c.TLS}} }
	past := time.Now().Add(-time.Hour)
	old := with(ca.Issue(t, certtest.Spec{Names: names}))
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	demanding := with(ca.Issue(t, certtest.Spec{Names: names}))
	demanding.ClientAuth, demanding.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	tests := []struct {
		name   string
		config *tls.Config
		want   string
	}{
		{"expired", with(ca.Issue(t, certtest.Spec{Names: names, NotBefore: past.Add(-time.Hour), NotAfter: past})), "the certificate expired on"},
		{"wrong name", with(ca.Issue(t, certtest.Spec{Names: []string{"mx.example"}})), "the certificate is for mx.example, not for 127.0.0.1"},
		{"unknown issuer", with(stranger.Issue(t, certtest.Spec{Names: names})), "its issuer is unknown"},
		{"too old", old, "no TLS version in common"},
		{"demands a client certificate", demanding, "it demands a client certificate"},
	}
	for _, tt := range tests {
		for _, start := range []bool{false, true} {
			s := mail().over(tt.config)
			if !start {
				s.fromStart()
			}
			to := checktest.Serve(t, checktest.Listen(t), s.serve)
			_, err := checktest.Run(t, Check{TLS: &tlsopt.Options{CA: ca.PEM()}, StartTLS: start}, healthcheck.Env{}, to, long)
			if !strings.Contains(checktest.Text(err), tt.want) {
				t.Errorf("%s, STARTTLS %v: want %q, got %v", tt.name, start, tt.want, err)
			}
		}
	}
	// A server in the clear.
	to := checktest.Serve(t, checktest.Listen(t), mail().serve)
	_, err := checktest.Run(t, Check{TLS: &tlsopt.Options{}}, healthcheck.Env{}, to, long)
	if got := checktest.Text(err); got != `TLS handshake: the server does not speak TLS: it answers "220 m"` {
		t.Errorf("no TLS: got %q", got)
	}
}

// TestLeaks makes a thousand checks that fail in each way.
func TestLeaks(t *testing.T) {
	for name, to := range map[string]string{
		"refused": checktest.Refusing(t),
		"closes":  checktest.Serve(t, checktest.Listen(t), checktest.Close),
		"greets":  checktest.Serve(t, checktest.Listen(t), mail("greeting", "554 no\r\n").serve),
		"garbage": checktest.Serve(t, checktest.Listen(t), checktest.Say("SSH-2.0-x\r\n")),
		"hangs":   checktest.Serve(t, checktest.Listen(t), checktest.Hang),
	} {
		timeout := long
		if name == "hangs" {
			timeout = 20 * time.Millisecond
		}
		checktest.Leaks(t, 1000, func() {
			if _, err := checktest.Run(t, Check{}, healthcheck.Env{}, to, timeout); err == nil {
				t.Errorf("%s: want a failure", name)
			}
		})
	}
}
