package checktest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Listen listens on a port of its own on the loopback device until the test ends.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// Serve answers each connection of ln with answer, closes it when answer returns,
// and returns the address of ln. When the test ends, it closes everything and
// waits for the answers.
func Serve(t testing.TB, ln net.Listener, answer func(net.Conn)) string {
	t.Helper()
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		ended   bool
		open    = make(map[net.Conn]bool)
	)
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			if ended {
				c.Close()
			}
			mu.Unlock()
			running.Go(func() {
				answer(c)
				mu.Lock()
				delete(open, c)
				mu.Unlock()
				c.Close()
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		ended = true
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return ln.Addr().String()
}

// Hang reads and never says a word.
func Hang(c net.Conn) { io.Copy(io.Discard, c) }

// Close closes at once.
func Close(net.Conn) {}

// Say says s, then reads until the client closes.
func Say(s string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, s)
		Hang(c)
	}
}

// SayAndClose says s, tells the client that this was all, and reads until the
// client closes.
func SayAndClose(s string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, s)
		if t, ok := c.(interface{ CloseWrite() error }); ok {
			t.CloseWrite()
		}
		Hang(c)
	}
}

// Drip says s byte by byte, with a gap before each, then reads.
func Drip(s string, gap time.Duration) func(net.Conn) {
	return func(c net.Conn) {
		for i := range len(s) {
			time.Sleep(gap)
			if _, err := io.WriteString(c, s[i:i+1]); err != nil {
				return
			}
		}
		Hang(c)
	}
}

// Endless says s again and again.
func Endless(s string) func(net.Conn) {
	b := []byte(s)
	return func(c net.Conn) {
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
}

// Reset reads something and resets the connection.
func Reset(c net.Conn) {
	c.Read(make([]byte, 1))
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
}
