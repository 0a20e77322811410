package httpconn

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is how long a failed write waits for the reader.
const patience = 50 * time.Millisecond

// witness is a connection that remembers what a server said at first and why
// reading ended: net/http may tell no more than that a connection could not be
// established, or that it was used when it was closed already.
type witness struct {
	net.Conn
	// over is closed when reading has ended.
	over chan struct{}

	mu   sync.Mutex
	head string
	err  error
}

// errNotHTTP2 is the error of a server that answers HTTP/2 in HTTP/1.x.
var errNotHTTP2 = errors.New("the server answers in HTTP/1.x")

// http1 is how an answer in HTTP/1.x begins.
const http1 = "HTTP/1."

// Read implements net.Conn.
func (w *witness) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if missing := len(http1) - len(w.head); missing > 0 {
		w.head += string(p[:min(n, missing)])
	}
	if err != nil && w.err == nil {
		w.err = err
		close(w.over)
	}
	return n, err
}

// Write implements net.Conn. A server that refuses says why and closes, and what
// is written then fails at once: the reader gets a moment to hear the reason before
// net/http closes the connection.
func (w *witness) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		select {
		case <-w.over:
		case <-time.After(patience):
		}
	}
	return n, err
}

// why returns the best error for err of net/http's: that of the context, then that
// of the read side, where a server says why it closes.
func (w *witness) why(ctx context.Context, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case strings.HasPrefix(w.head, http1):
		return errNotHTTP2
	case w.err != nil && !errors.Is(w.err, net.ErrClosed):
		return w.err
	}
	return err
}
