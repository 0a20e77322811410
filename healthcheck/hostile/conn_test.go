package hostile

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pair returns two ends of a connection.
func pair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// TestConnLimit takes the last allowed byte and not one more.
func TestConnLimit(t *testing.T) {
	client, server := pair(t)
	c := Bound(t.Context(), client, 10)
	defer c.Close()
	io.WriteString(server, strings.Repeat("x", 11))
	b := make([]byte, 100)
	if n, err := io.ReadFull(c, b[:10]); n != 10 || err != nil {
		t.Fatalf("want the first 10 bytes, got %d, %v", n, err)
	}
	n, err := c.Read(b)
	if n != 0 || !errors.Is(err, ErrTooMuch) || err.Error() != "the target sends too much: over 10 bytes" {
		t.Errorf("want ErrTooMuch, got %d, %v", n, err)
	}
}

// TestConnDeadline ends reads and writes with the context, even of code that
// grants itself more time.
func TestConnDeadline(t *testing.T) {
	for name, call := range map[string]func(c *Conn) error{
		"read": func(c *Conn) error { _, err := c.Read(make([]byte, 1)); return err },
		"write": func(c *Conn) (err error) {
			for b := make([]byte, 1<<20); err == nil; {
				_, err = c.Write(b)
			}
			return err
		},
	} {
		client, _ := pair(t)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		c := Bound(ctx, client, 10)
		// Longer than the context.
		c.SetDeadline(time.Now().Add(time.Hour))
		err := call(c)
		if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "no answer in time: context deadline exceeded" {
			t.Errorf("%s: want the context's error, got %v", name, err)
		}
		// The context's end has been seen; now nothing gives time again.
		for _, set := range []func(time.Time) error{c.SetDeadline, c.SetReadDeadline, c.SetWriteDeadline} {
			if err := set(time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		if err := call(c); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s again: want the context's error, got %v", name, err)
		}
		c.Close()
	}
}

// TestConnOwnDeadline leaves a deadline of the user's to him.
func TestConnOwnDeadline(t *testing.T) {
	client, _ := pair(t)
	c := Bound(t.Context(), client, 10)
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want the poller's error, got %v", err)
	}
}

func TestConnCancel(t *testing.T) {
	client, _ := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := Bound(ctx, client, 10)
	defer c.Close()
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := c.Read(make([]byte, 1)); err != context.Canceled {
		t.Errorf("want context canceled, got %v", err)
	}
}

// TestConnClose says goodbye to a target that answered, and resets the connection
// to one that did not.
func TestConnClose(t *testing.T) {
	for name, want := range map[string]error{"done": io.EOF, "ended": syscall.ECONNRESET} {
		client, server := pair(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := Bound(ctx, client, 10)
		if name == "ended" {
			cancel()
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
		server.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := server.Read(make([]byte, 1)); !errors.Is(err, want) {
			t.Errorf("%s: want %v at the server, got %v", name, want, err)
		}
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: second close: %v", name, err)
		}
	}
}
