package grpccheck

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/certtest"
	"github.com/lbd-project/lbd/internal/checktest"
)

// TestRequest has the server see all of the question.
func TestRequest(t *testing.T) {
	options, cert := secure(t)
	for _, tt := range []struct {
		check Check
		cert  *certtest.Cert
		body  string
	}{
		{Check{Authority: "a.example:50051"}, nil, "0000000000"},
		{Check{Authority: "a.example", Service: "a.B"}, nil, "00000000050a03612e42"},
		{Check{Authority: "a.example", Service: "a.B", TLS: options}, cert, "00000000050a03612e42"},
	} {
		var got http.Request
		var body []byte
		to := serve(t, func(w http.ResponseWriter, r *http.Request) {
			got = *r
			body, _ = io.ReadAll(r.Body)
			answer(serving, "Grpc-Status", "0")(w, r)
		}, tt.cert)
		r, err := run(t, tt.check, to)
		if err != nil || r.Detail != "SERVING" || (r.Warning != "") != (tt.cert != nil) {
			t.Fatalf("%v: want SERVING, got %+v, %v", tt.check, r, err)
		}
		if !regexp.MustCompile(`^\d{1,8}m$`).MatchString(got.Header.Get("Grpc-Timeout")) {
			t.Errorf("%v: grpc-timeout %q", tt.check, got.Header.Get("Grpc-Timeout"))
		}
		got.Header.Del("Grpc-Timeout")
		want := http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {"lbd"}, "Content-Length": got.Header["Content-Length"]}
		if diff := cmp.Diff(want, got.Header); diff != "" {
			t.Errorf("%v: headers (-want +got)\n%s", tt.check, diff)
		}
		line := strings.Join([]string{got.Proto, got.Method, got.URL.Path, got.Host, hex.EncodeToString(body)}, " ")
		if want := "HTTP/2.0 POST /grpc.health.v1.Health/Check " + tt.check.Authority + " " + tt.body; line != want {
			t.Errorf("want %q, got %q", want, line)
		}
		if tt.cert != nil && (got.TLS.ServerName != "a.example" || got.TLS.NegotiatedProtocol != "h2") {
			t.Errorf("TLS of %q, %q", got.TLS.ServerName, got.TLS.NegotiatedProtocol)
		}
	}
}

// TestAnswers has every answer, each with its error.
func TestAnswers(t *testing.T) {
	const ok = "Grpc-Status"
	html := func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "<html>\x1b"+strings.Repeat("x", 1<<20))
	}
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"serving", answer(serving, ok, "0"), ""},
		{"serving and more fields", answer("\x00\x00\x00\x00\x0b\x12\x01x\x1d1234\x08\x01\x10", ok, "0"), "the answer is not a HealthCheckResponse: cut or of an unknown wire type"},
		{"unknown", answer("\x00\x00\x00\x00\x00", ok, "0"), "the server says UNKNOWN"},
		{"not serving", answer("\x00\x00\x00\x00\x02\x08\x02", ok, "0"), "the server says NOT_SERVING"},
		{"service unknown", answer("\x00\x00\x00\x00\x02\x08\x03", ok, "0"), "the server says SERVICE_UNKNOWN"},
		{"status 77", answer("\x00\x00\x00\x00\x02\x08\x4d", ok, "0"), "the server says status 77"},
		{"serving, then an error", answer(serving, ok, "14", "Grpc-Message", "going%20down%0a"), "the server fails the call with UNAVAILABLE: going down"},
		{"not found", trailersOnly("5", ""), `the server does not know the service "a.B" (NOT_FOUND)`},
		{"unimplemented", trailersOnly("12", "unknown service grpc.health.v1.Health"), "the server has no health service (UNIMPLEMENTED): unknown service grpc.health.v1.Health"},
		{"permission", trailersOnly("7", strings.Repeat("%1b", 10000)), "the server fails the call with PERMISSION_DENIED: " + strings.Repeat("?", 197) + "…"},
		{"code 99", trailersOnly("99", ""), "the server fails the call with code 99"},
		{"code words", trailersOnly("fine", ""), `grpc-status "fine" is not a number`},
		{"code negative", trailersOnly("-1", ""), `grpc-status "-1" is not a number`},
		{"OK without message", trailersOnly("0", ""), "the server says OK without a message"},
		{"empty body", answer("", ok, "0"), "the server says OK without a message"},
		{"no status", answer(serving), "the answer has no grpc-status"},
		{"half a prefix", answer("\x00\x00", ok, "0"), "bad gRPC message: ends after 2 bytes of its prefix"},
		{"half a message", answer("\x00\x00\x00\x00\x02\x08", ok, "0"), "bad gRPC message: ends after 1 bytes of 2"},
		{"two messages", answer(serving+serving, ok, "0"), "bad gRPC message: more than one"},
		{"compressed", answer("\x01\x00\x00\x00\x02\x08\x01", ok, "0"), "bad gRPC message: compressed, which nobody asked for"},
		{"flag", answer("\x80\x00\x00\x00\x02\x08\x01", ok, "0"), "bad gRPC message: flag 128 is unknown"},
		{"huge", answer("\x00\xff\xff\xff\xff", ok, "0"), "bad gRPC message: 4294967295 bytes are more than 4096"},
		{"no message at all", answer("\x00\x00\x00\x00\x02\xff\xff", ok, "0"), "the answer is not a HealthCheckResponse: bad field"},
		{"status as text", answer("\x00\x00\x00\x00\x03\x0a\x01x", ok, "0"), "the answer is not a HealthCheckResponse: the status has wire type 2"},
		{"HTTP", html, `the answer is "text/html; charset=utf-8" and not application/grpc`},
		{"grpc-web", func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Type", "application/grpc-web") }, `the answer is "application/grpc-web" and not application/grpc`},
		{"404", http.NotFound, "HTTP status 404: the server speaks HTTP/2, but no gRPC there"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusTemporaryRedirect) }, "HTTP status 307: the server speaks HTTP/2, but no gRPC there"},
		{"aborts", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "bad answer: stream error: stream ID 1; INTERNAL_ERROR; received from peer"},
	} {
		_, err := run(t, Check{Service: "a.B"}, serve(t, tt.answer, nil))
		if checktest.Text(err) != tt.want {
			t.Errorf("%s: want %q, got %v", tt.name, tt.want, err)
		}
	}
}

// TestServers has what does not speak gRPC at all.
func TestServers(t *testing.T) {
	options, cert := secure(t)
	stranger, _ := secure(t)
	http1 := func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert.TLS}})
		s.Handshake()
		checktest.Hang(s)
	}
	refusing := checktest.Refusing(t)
	raw := func(answer func(net.Conn)) string { return checktest.Serve(t, checktest.Listen(t), answer) }
	fine := answer(serving, "Grpc-Status", "0")
	for _, tt := range []struct {
		name  string
		check Check
		to    string
		want  string // or its begin before "*"
	}{
		{"refuses", Check{}, refusing, "connect " + refusing + ": connection refused"},
		{"closes", Check{}, raw(checktest.Close), "*"},
		{"HTTP/1.1", Check{}, raw(checktest.Say("HTTP/1.1 400 Bad Request\r\n\r\n")), "the server answers in HTTP/1.x"},
		{"endless", Check{}, raw(checktest.Endless(strings.Repeat("garbage", 1000))), "bad answer: *"},
		{"TLS without HTTP/2", Check{TLS: options}, raw(http1), "the server does not agree to HTTP/2 (ALPN)"},
		{"plaintext server", Check{TLS: options}, serve(t, fine, nil), "TLS handshake: the server closed the connection before it was done"},
		{"TLS server", Check{}, serve(t, fine, cert), "*"},
		{"stranger", Check{TLS: stranger}, serve(t, fine, cert), "TLS handshake: the certificate is not trusted: *"},
		{"wrong name", Check{TLS: options, Authority: "b.example"}, serve(t, fine, cert), "TLS handshake: the certificate is for a.example, 127.0.0.1, not for b.example"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := run(t, tt.check, tt.to)
			if err == nil || !checktest.Says(err, tt.want) {
				t.Errorf("want %q, got %q", tt.want, checktest.Text(err))
			}
		})
	}
}

// TestDeadline ends with the context, wherever the server is slow.
func TestDeadline(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	half := func(w http.ResponseWriter, r *http.Request) {
		answer(serving)(w, r)
		hang(w, r)
	}
	drip := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		for i := 0; r.Context().Err() == nil; i++ {
			w.Write([]byte("\x00\x00\x00\x0f\xff"[min(i, 4):min(i+1, 5)]))
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	}
	for name, to := range map[string]string{
		"silent": checktest.Serve(t, checktest.Listen(t), checktest.Hang),
		"hangs":  serve(t, hang, nil), "no trailer": serve(t, half, nil), "drips": serve(t, drip, nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := checktest.RunUntil(t, Check{}, healthcheck.Env{}, to, 200*time.Millisecond, "*")
			if !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), "no answer in time: context deadline exceeded") {
				t.Errorf("want the deadline, got %v", err)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	target := netip.MustParseAddrPort("192.0.2.1:80")
	for _, tt := range []struct {
		check  Check
		target netip.AddrPort
		want   string
	}{
		{Check{}, target, ""},
		{Check{Service: "a.B", Authority: "[::1]:80", TLS: &tlsopt.Options{ALPN: []string{"h2", "grpc-exp"}}}, target, ""},
		{Check{Service: "\xff"}, target, "is not UTF-8"},
		{Check{Service: strings.Repeat("a", 1025)}, target, "longer than 1024 bytes"},
		{Check{Authority: "a b"}, target, `host "a b" is neither`},
		{Check{TLS: &tlsopt.Options{ALPN: []string{"http/1.1"}}}, target, `ALPN without "h2"`},
		{Check{TLS: &tlsopt.Options{CA: []byte("x")}}, target, "no certificate in the CA"},
		{Check{}, netip.MustParseAddrPort("192.0.2.1:0"), "no port"},
		{Check{}, netip.MustParseAddrPort("[fe80::1]:80"), "link-local"},
	} {
		_, err := tt.check.NewChecker(tt.target, healthcheck.Env{})
		if got := checktest.Text(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
			t.Errorf("%v: want error with %q, got %v", tt.check, tt.want, err)
		}
	}
}

// TestKey changes each option and wants another key each time.
func TestKey(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range []Check{
		{}, {Service: "a"}, {Authority: "a"}, {Service: `a" authority="b`}, {TLS: &tlsopt.Options{}}, {TLS: &tlsopt.Options{NoSNI: true}}, {Via: healthcheck.Via{Mark: 1}},
	} {
		if seen[c.Key()] {
			t.Errorf("key %q twice", c.Key())
		}
		seen[c.Key()] = true
	}
	if !(Check{Service: "a", TLS: &tlsopt.Options{}}).Equal(Check{Service: "a", TLS: &tlsopt.Options{}}) {
		t.Error("equal checks differ")
	}
}

// TestLeaks makes a thousand checks that fail in every way.
func TestLeaks(t *testing.T) {
	options, cert := secure(t)
	refusing := checktest.Refusing(t)
	down := answer("\x00\x00\x00\x00\x02\x08\x02", "Grpc-Status", "0")
	hang := checktest.Serve(t, checktest.Listen(t), checktest.Hang)
	plain, encrypted := serve(t, down, nil), serve(t, down, cert)
	type target struct {
		check   Check
		to      string
		timeout time.Duration
	}
	var targets []target
	for _, c := range []Check{{}, {TLS: options}} {
		for _, to := range []string{plain, encrypted, refusing} {
			targets = append(targets, target{c, to, 10 * time.Second})
		}
		targets = append(targets, target{c, hang, 5 * time.Millisecond})
	}
	var next, failed atomic.Int64
	checktest.Leaks(t, 1000, func() {
		tt := targets[int(next.Add(1))%len(targets)]
		if _, err := checktest.Run(t, tt.check, healthcheck.Env{}, tt.to, tt.timeout); err != nil {
			failed.Add(1)
		}
	})
	if got := failed.Load(); got != 1001 {
		t.Errorf("want 1001 failed checks, got %d", got)
	}
}
