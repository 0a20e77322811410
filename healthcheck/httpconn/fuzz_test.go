package httpconn

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/checktest"
)

// answerer says first, and the rest once it was asked: an answer to what was not
// asked yet would never be looked at.
type answerer struct {
	net.Conn
	rest []byte

	mu     sync.Mutex
	heard  []byte
	passed int
	asked  chan struct{}
	closed chan struct{}
	once   sync.Once
}

// preface is how many bytes a client says before its first frame.
const preface = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

func (a *answerer) Read(p []byte) (int, error) {
	if n, err := a.Conn.Read(p); err == nil || len(a.rest) == 0 {
		return n, err
	}
	select {
	case <-a.asked:
	case <-a.closed:
		return 0, net.ErrClosed
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// Write waits for the header of a request, frame type 1.
func (a *answerer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = append(a.heard, p...)
	if a.passed == 0 {
		a.passed = preface
	}
	for len(a.heard) >= a.passed+9 {
		b := a.heard[a.passed:]
		if b[3] == 1 {
			select {
			case <-a.asked:
			default:
				close(a.asked)
			}
		}
		a.passed += 9 + int(b[0])<<16 + int(b[1])<<8 + int(b[2])
	}
	return len(p), nil
}

func (a *answerer) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}

// FuzzHTTP2 has any bytes as what a server of HTTP/2 says before and after it is
// asked. It ends, and what is wrong can be shown.
func FuzzHTTP2(f *testing.F) {
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x00\x04\x01\x00\x00\x00\x00"
	const ok = "\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88" // :status 200
	f.Add([]byte(settings), []byte(ok+"\x00\x00\x05\x00\x01\x00\x00\x00\x01ready"))
	f.Add([]byte(settings), []byte("\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88"))
	f.Add([]byte(settings), []byte(ok+"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x07"))
	f.Add([]byte(settings), []byte("\x00\x00\x0b\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0bbad"))
	f.Add([]byte(settings), []byte("\x00\x00\x02\x01\x05\x00\x00\x00\x01\x3f\xe1"))
	f.Add([]byte("HTTP/1.1 400 Bad\x1b Request\r\n\r\n"), []byte(nil))
	f.Add([]byte("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x7f\xff\xff\xff"), []byte("\x00\x40\x01\x00\x00\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, first, rest []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		conn := &answerer{Conn: checktest.Canned(first), rest: rest, asked: make(chan struct{}), closed: make(chan struct{})}
		client, err := NewHTTP2(ctx, conn)
		if err != nil {
			conn.Close()
			checktest.Shown(t, Explain(err).Error())
			return
		}
		defer client.Close()
		r := &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: "a.example", Path: "/"}, Host: "a.example", Header: http.Header{}}
		answer, err := client.RoundTrip(r.WithContext(ctx))
		if err != nil {
			checktest.Shown(t, Explain(err).Error())
		} else {
			n, err := io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			if n > int64(len(rest)) {
				t.Fatalf("a body of %d bytes in %d", n, len(rest))
			}
			if err != nil {
				checktest.Shown(t, Explain(err).Error())
			}
		}
		if ctx.Err() != nil {
			t.Fatal("it hangs")
		}
	})
}

// The fuzz test is of use only if a good server comes through.
func TestAnswerer(t *testing.T) {
	conn := &answerer{
		Conn: checktest.Canned([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00")), asked: make(chan struct{}), closed: make(chan struct{}),
		rest: []byte("\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88" + "\x00\x00\x05\x00\x01\x00\x00\x00\x01ready"),
	}
	client, err := NewHTTP2(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://a.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if b, err := io.ReadAll(answer.Body); err != nil || string(b) != "ready" || answer.StatusCode != 200 {
		t.Errorf("want status 200 and ready, got %d and %q, %v", answer.StatusCode, b, err)
	}
}
