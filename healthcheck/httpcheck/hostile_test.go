package httpcheck

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/stream"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/checktest"
)

var testEnv healthcheck.Env

const fine = "HTTP/1.1 200 OK\r\n"

// bad are answers of HTTP/1.x that make a check fail, each with its error or the
// begin of it before a "*".
var bad = []struct {
	name   string
	answer func(net.Conn)
	want   string
}{
	{"closes", says(""), "GET /: the server closed the connection without an answer"},
	{"resets", func(c net.Conn) { readRequest(c); c.(*net.TCPConn).SetLinger(0) }, "GET /: the server reset the connection: connection reset by peer"},
	{"half a line", says("HTTP/1.1 200"), "GET /: the server closed the connection before the end of its answer: unexpected EOF"},
	{"half a header", says(fine + "A: b\r\n"), "GET /: the server closed the connection before the end of its answer: unexpected EOF"},
	{"half a body", says(fine + "Content-Length: 10\r\n\r\nabc"), "GET /: read body: the server closed the connection before the end of its answer: unexpected EOF"},
	{"half a chunk", says(fine + "Transfer-Encoding: chunked\r\n\r\n5\r\nabc"), "GET /: read body: the server closed the connection before the end of its answer: unexpected EOF"},
	{"no last chunk", says(fine + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"), "GET /: read body: the server closed the connection before the end of its answer: unexpected EOF"},
	{"chunk garbage", says(fine + "Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc"), "GET /: read body: bad answer: invalid byte in chunk length"},
	{"chunk without end", says(fine + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef"), "GET /: read body: bad answer: malformed chunked encoding"},
	{"huge chunk", says(fine + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"), "GET /: read body: bad answer: http chunk length too large"},
	{"strange coding", says(fine + "Transfer-Encoding: rot13\r\n\r\nabc"), `GET /: bad answer: unsupported transfer encoding: "rot13"`},
	{"two lengths", says(fine + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), "GET /: bad answer: http: message cannot contain multiple Content-Length headers*"},
	{"negative length", says(fine + "Content-Length: -1\r\n\r\n"), `GET /: bad answer: bad Content-Length "-1"`},
	{"huge length", says(fine + "Content-Length: 9223372036854775807\r\n\r\nabc"), "GET /: read body: the server closed the connection before the end of its answer: unexpected EOF"},
	{"status 099", says("HTTP/1.1 099 No\r\n\r\n"), "GET /: status 099 is not within 100 to 599"},
	{"status 000", says("HTTP/1.1 000 No\r\n\r\n"), "GET /: status 000 is not within 100 to 599"},
	{"status 600", says("HTTP/1.1 600 No\r\n\r\n"), "GET /: status 600 is not within 100 to 599"},
	{"status 999", says("HTTP/1.1 999 No\r\n\r\n"), "GET /: status 999 is not within 100 to 599"},
	{"status 20", says("HTTP/1.1 20 No\r\n\r\n"), `GET /: bad answer: malformed HTTP status code "20"`},
	{"status -20", says("HTTP/1.1 -20 No\r\n\r\n"), `GET /: bad answer: malformed HTTP status code "-20"`},
	{"status 2000", says("HTTP/1.1 2000 No\r\n\r\n"), `GET /: bad answer: malformed HTTP status code "2000"`},
	{"status words", says("HTTP/1.1 two hundred\r\n\r\n"), `GET /: bad answer: malformed HTTP status code "two"`},
	{"HTTP/0.9", says("<html>hello</html>"), `GET /: bad answer: malformed HTTP response "<html>hello</html>"`},
	{"HTTP/2.0", says("HTTP/2.0 200 OK\r\n\r\n"), "GET /: bad answer: the server answers in HTTP/2.0"},
	{"HTTP/9.9", says("HTTP/9.9 200 OK\r\n\r\n"), "GET /: bad answer: the server answers in HTTP/9.9"},
	{"ICY", says("ICY 200 OK\r\n\r\n"), `GET /: bad answer: malformed HTTP version "ICY"`},
	{"SSH", says("SSH-2.0-OpenSSH_9.9 x\x1b[2J\r\n"), `GET /: bad answer: malformed HTTP*`},
	{"another protocol", says("-ERR unknown\r\n"), `GET /: bad answer: malformed HTTP status code "unknown"`},
	{"TLS alert", says("\x15\x03\x01\x00\x02\x02\x46"), "GET /: the server speaks TLS, and the check does not"},
	{"HTTP/2", says("\x00\x00\x00\x04\x00\x00\x00\x00\x00"), "GET /: the server answers in HTTP/2"},
	{"header without colon", says(fine + "nonsense\r\n\r\n"), "GET /: bad answer: malformed MIME header*"},
	{"zero bytes", says(strings.Repeat("\x00", 200)), `GET /: bad answer: malformed HTTP response "\x00\x00*`},
	{"endless line", forever("HTTP/1.1 200 ", strings.Repeat("x", 1000)), "GET /: the header of the answer is longer than 65536 bytes"},
	{"endless nothing", forever("", strings.Repeat("\x00", 1000)), "GET /: the header of the answer is longer than 65536 bytes"},
	{"endless header", forever(fine, "A: b\r\n"), "GET /: the header of the answer is longer than 65536 bytes"},
	{"endless field", forever(fine+"A: ", strings.Repeat("x", 1000)), "GET /: the header of the answer is longer than 65536 bytes"},
	{"endless 1xx", forever("", "HTTP/1.1 100 Continue\r\n\r\n"), "GET /: the header of the answer is longer than 65536 bytes"},
	{"endless body", forever(fine+"\r\n", strings.Repeat("x", 1000)), "GET /: the body is longer than 100000 bytes"},
	{"endless chunks", forever(fine+"Transfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\nx\r\n", 100)), "GET /: the body is longer than 100000 bytes"},
	{"endless chunk extensions", forever(fine+"Transfer-Encoding: chunked\r\n\r\n", "1;"+strings.Repeat("x", 1000)+"\r\nx\r\n"), "GET /: read body: bad answer: chunked encoding contains too much non-data"},
	{"endless trailer", forever(fine+"Transfer-Encoding: chunked\r\n\r\n0\r\n", "A: b\r\n"), "GET /: read body: bad answer: http: suspiciously long trailer after chunked body"},
	{"gzip", says(fine + "Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08"), `GET /: the body of 3 bytes does not match "x" (it has the Content-Encoding gzip, which nobody asked for)`},
	{"hostile location", says("HTTP/1.1 302 F\r\nLocation: /\xff\u202e" + strings.Repeat("x", 10000) + "\r\n\r\n"), "GET /: status 302 is not 200-299 (redirects are not followed: /??xxx*"},
}

// TestBad has a bounded error for every answer, over plain TCP and over TLS.
func TestBad(t *testing.T) {
	options, cert := secure(t)
	for _, tt := range bad {
		for _, overTLS := range []bool{false, true} {
			if overTLS && tt.name == "resets" {
				continue
			}
			t.Run(fmt.Sprintf("%s, TLS %v", tt.name, overTLS), func(t *testing.T) {
				t.Parallel()
				c := Check{MaxBody: 100000, Requests: []Request{{Path: "/", Match: regexp.MustCompile("x")}}}
				answer := tt.answer
				if overTLS {
					c.TLS = options
					answer = func(c net.Conn) {
						s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert.TLS}})
						tt.answer(s)
						s.Close()
					}
				}
				_, err := run(t, c, raw(t, answer))
				got := checktest.Text(err)
				if !checktest.Says(err, tt.want) {
					t.Errorf("want %q, got %q", tt.want, got)
				} else if len(got) > 400 || strings.ContainsAny(got, "\x00\x1b\n\u202e") {
					t.Errorf("the error has %d bytes: %q", len(got), got)
				}
			})
		}
	}
}

// TestBadHTTP2 is the same for HTTP/2, whose frames net/http reads.
func TestBadHTTP2(t *testing.T) {
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for _, tt := range []struct {
		name   string
		answer func(net.Conn)
		want   string
	}{
		{"closes", func(c net.Conn) { readRequest2(c) }, "GET /: the server closed the connection before the end of its answer: *"},
		{"HTTP/1.1", says("HTTP/1.1 400 Bad Request\r\n\r\n"), "GET /: the server answers in HTTP/1.x"},
		{"garbage", says(strings.Repeat("garbage!", 100)), "GET /: bad answer: *"},
		{"GOAWAY", says2(settings + "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"), "GET /: bad answer: http2: *"},
		{"endless SETTINGS", flood(settings, strings.Repeat(settings, 1000)), "GET /: the target sends too much in all*"},
		{"endless PING", flood(settings, "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"), "GET /: the target sends too much in all*"},
		{"reset stream", says2(settings + "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x02"), "GET /: bad answer: stream error: stream ID 1; INTERNAL_ERROR*"},
		{"status 99", says2(settings + "\x00\x00\x05\x01\x05\x00\x00\x00\x01\x48\x03" + "099"), "GET /: status 099 is not within 100 to 599"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := run(t, Check{Version: Version2, MaxBody: 1000}, raw(t, tt.answer))
			if !checktest.Says(err, tt.want) {
				t.Errorf("want %q, got %q", tt.want, checktest.Text(err))
			}
		})
	}
}

// TestDeadline ends every check with its context, wherever the server is slow.
func TestDeadline(t *testing.T) {
	_, cert := secure(t)
	drip := func(begin string) func(net.Conn) {
		return func(c net.Conn) {
			_, err := io.WriteString(c, begin)
			for err == nil {
				time.Sleep(5 * time.Millisecond)
				_, err = io.WriteString(c, "x")
			}
		}
	}
	options, _ := secure(t)
	trusting := &tlsopt.Options{SkipVerify: true}
	for _, tt := range []struct {
		name   string
		check  Check
		answer func(net.Conn)
	}{
		{"hangs", Check{}, checktest.Hang},
		{"never reads", Check{Body: make([]byte, 1<<20)}, func(c net.Conn) { c.(*net.TCPConn).SetReadBuffer(1024); time.Sleep(2 * time.Second) }},
		{"drips a header", Check{}, drip("HTTP/1.1 200 ")},
		{"begins a status line", Check{}, func(c net.Conn) { io.WriteString(c, "HTTP/1"); checktest.Hang(c) }},
		{"begins a header", Check{}, func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent"); checktest.Hang(c) }},
		{"drips a body", Check{}, drip(fine + "\r\n")},
		{"hangs in TLS", Check{TLS: options}, checktest.Hang},
		{"hangs after TLS", Check{TLS: trusting}, func(c net.Conn) {
			s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert.TLS}})
			s.Handshake()
			checktest.Hang(c)
		}},
		{"hangs in HTTP/2", Check{Version: Version2}, checktest.Hang},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := checktest.RunUntil(t, tt.check, testEnv, raw(t, tt.answer), 200*time.Millisecond, "*")
			if !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), "no answer in time: context deadline exceeded") {
				t.Errorf("want the deadline, got %v", err)
			}
		})
	}
}

// TestDeadlineAtRequest has the time end just as the request is gone.
func TestDeadlineAtRequest(t *testing.T) {
	c, err := Check{}.NewChecker(netip.MustParseAddrPort("127.0.0.1:80"), testEnv)
	if err != nil {
		t.Fatal(err)
	}
	client, server := net.Pipe()
	defer client.Close()
	go io.Copy(io.Discard, server)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	k := c.(*checker)
	_, err = k.exchange1(ctx, &stream.Conn{Conn: client}, &k.exchanges[0])
	if want := "no answer in time: context deadline exceeded"; checktest.Text(err) != want || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want %q, got %v", want, err)
	}
}

// TestOneDeadline does not give each request a deadline of its own.
func TestOneDeadline(t *testing.T) {
	to := raw(t, func(c net.Conn) {
		readRequest(c)
		time.Sleep(50 * time.Millisecond)
		io.WriteString(c, fine+"\r\n")
	})
	many := Check{Requests: make([]Request, 20)}
	for i := range many.Requests {
		many.Requests[i].Path = "/"
	}
	if _, err := checktest.Run(t, many, testEnv, to, 200*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("20 requests of 50 ms each in 200 ms: got %v", err)
	}
}

func TestCancel(t *testing.T) {
	for _, version := range []string{Version11, Version2} {
		ctx, cancel := context.WithCancel(t.Context())
		checker, err := (Check{Version: version}).NewChecker(netip.MustParseAddrPort(raw(t, checktest.Hang)), testEnv)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(50*time.Millisecond, cancel)
		if _, err := checker.Check(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("HTTP/%s: want context canceled, got %v", version, err)
		}
	}
}

// TestEarlyAnswer has a server that answers and closes before it has read a long
// request: the answer counts and not the broken write.
func TestEarlyAnswer(t *testing.T) {
	to := raw(t, func(c net.Conn) {
		c.Read(make([]byte, 100))
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c)
	})
	c := Check{Method: "POST", Body: make([]byte, 1<<20)}
	if _, err := run(t, c, to); checktest.Text(err) != "POST /: status 413 is not 200-299" {
		t.Errorf("want status 413, got %v", err)
	}
}

// TestLeaks makes a thousand checks that fail in every way.
func TestLeaks(t *testing.T) {
	options, cert := secure(t)
	type target struct {
		check   Check
		to      string
		timeout time.Duration
	}
	var targets []target
	for _, b := range bad {
		if !strings.HasPrefix(b.name, "endless") {
			targets = append(targets, target{Check{Requests: []Request{{Path: "/", Match: regexp.MustCompile("x")}}}, raw(t, b.answer), 10 * time.Second})
		}
	}
	no := func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotFound) }
	plain, encrypted, hang := serve(t, no, nil), serve(t, no, cert), raw(t, checktest.Hang)
	refusing := checktest.Refusing(t)
	for i, k := range kinds {
		c := Check{Version: k.version}
		if k.tls {
			c.TLS = options
		}
		for _, to := range []string{plain, encrypted, refusing} {
			targets = append(targets, target{c, to, 10 * time.Second})
		}
		targets = append(targets, target{c, hang, time.Duration(1+i) * time.Millisecond})
	}
	var next, failed atomic.Int64
	checktest.Leaks(t, 1000, func() {
		tt := targets[int(next.Add(1))%len(targets)]
		if _, err := checktest.Run(t, tt.check, testEnv, tt.to, tt.timeout); err != nil {
			failed.Add(1)
		}
	})
	if got := failed.Load(); got != 1001 {
		t.Errorf("want 1001 failed checks, got %d", got)
	}
}
