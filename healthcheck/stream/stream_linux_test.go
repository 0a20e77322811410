package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/hostile"
	"github.com/lbd-project/lbd/internal/certtest"
	"github.com/lbd-project/lbd/internal/checktest"
)

func dial(t *testing.T, ctx context.Context, answer func(net.Conn)) *Conn {
	t.Helper()
	to := checktest.Serve(t, checktest.Listen(t), answer)
	c, err := Dial(ctx, healthcheck.Via{}, healthcheck.Env{}, netip.MustParseAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// stay never closes a connection by itself, nor does it read.
func stay(t *testing.T) func(net.Conn) {
	return func(net.Conn) { <-t.Context().Done() }
}

// patiently calls f until it returns nil, for half a minute at most: a server on a busy
// machine may be slower than a probe is patient.
func patiently(t *testing.T, f func() error) {
	t.Helper()
	begun := time.Now()
	err := f()
	for err != nil && time.Since(begun) < 30*time.Second {
		err = f()
	}
	if err != nil {
		t.Error(err)
	}
}

// TestFinishBounded ends with a server that does not close.
func TestFinishBounded(t *testing.T) {
	for name, answer := range map[string]func(net.Conn){
		"stays": stay(t), "endless": checktest.Endless(strings.Repeat("x", 4096)),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		if err := dial(t, ctx, answer).Finish(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

// TestFinishInTime waits for a server that says nothing no longer than it should, and
// ends in time for the deadline, which a check that passed must not miss by its own
// politeness.
func TestFinishInTime(t *testing.T) {
	for _, tt := range []struct{ left, want time.Duration }{
		{time.Minute, patience}, {2 * patience, patience}, {patience, patience / 2}, {time.Millisecond, time.Millisecond / 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, server := net.Pipe()
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), tt.left)
			defer cancel()
			c := &Conn{Conn: hostile.Bound(ctx, client, defaultLimit), tcp: client}
			begun := time.Now()
			if err := c.Finish(ctx); err != nil {
				t.Errorf("%v left: %v", tt.left, err)
			}
			if took := time.Since(begun); took != tt.want {
				t.Errorf("%v left: want it to take %v, got %v", tt.left, tt.want, took)
			}
		})
	}
}

// TestFinishTells has the server know at once that this is the end, and the
// connection stay until it has taken leave too.
func TestFinishTells(t *testing.T) {
	patiently(t, func() error {
		c := dial(t, t.Context(), checktest.Hang)
		if err := c.finish(t.Context()); !errors.Is(err, io.EOF) {
			return fmt.Errorf("want EOF from the server, got %v", err)
		}
		return nil
	})
}

// TestHangup has the server close first where it wants to.
func TestHangup(t *testing.T) {
	patiently(t, func() error {
		c := dial(t, t.Context(), func(c net.Conn) { io.WriteString(c, "221 bye\r\n") })
		c.Hangup(t.Context())
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			return fmt.Errorf("want EOF after Hangup, got %d, %v", n, err)
		}
		return nil
	})
}

// TestHangupTLS answers the close_notify of a server that waits for the answer
// before it closes the connection.
func TestHangupTLS(t *testing.T) {
	ca := certtest.New(t)
	cert := ca.Issue(t, certtest.Spec{Names: []string{"127.0.0.1"}})
	patiently(t, func() error {
		answered := make(chan error, 1)
		c := dial(t, t.Context(), func(c net.Conn) {
			s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert.TLS}})
			s.Handshake()
			s.CloseWrite()
			_, err := s.Read(make([]byte, 1))
			answered <- err
			if err != io.EOF {
				<-t.Context().Done()
			}
		})
		if _, err := c.StartTLS(t.Context(), &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}); err != nil {
			t.Fatal(err)
		}
		c.Hangup(t.Context())
		select {
		case err := <-answered:
			if err != io.EOF {
				return fmt.Errorf("want EOF at the server, got %v", err)
			}
		default:
			return errors.New("the close_notify is not answered")
		}
		if n, err := c.tcp.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			return fmt.Errorf("want EOF after Hangup, got %d, %v", n, err)
		}
		return nil
	})
}

func TestExplain(t *testing.T) {
	c := dial(t, t.Context(), checktest.Reset)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 1))
	if got := Explain(err).Error(); got != "read: connection reset by peer" {
		t.Errorf("reset: got %q", got)
	}
	if got := Explain(io.EOF).Error(); got != "the target closed the connection: EOF" {
		t.Errorf("EOF: got %q", got)
	}
	own := errors.New("own")
	if got := Explain(own); got != own {
		t.Errorf("other: got %v", got)
	}
}

func TestShare(t *testing.T) {
	if got := Share(t.Context(), time.Second); got != time.Second {
		t.Errorf("no deadline: want 1s, got %v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if got := Share(ctx, time.Second); got != time.Second {
		t.Errorf("an hour: want 1s, got %v", got)
	}
	if got := Share(ctx, 2*time.Hour); got > 30*time.Minute || got < 20*time.Minute {
		t.Errorf("an hour: want about half of it, got %v", got)
	}
	ended, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
	defer cancel()
	if got := Share(ended, time.Second); got != 0 {
		t.Errorf("over: want 0, got %v", got)
	}
}
