package hostile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// ErrTooMuch is in the chain of the error of a read beyond the limit.
var ErrTooMuch = errors.New("the target sends too much")

// past is a deadline that is over.
var past = time.Unix(1, 0)

// Conn is a connection that ends with a context and takes a limited number of
// bytes. Reads must not be concurrent with each other, as usual.
type Conn struct {
	net.Conn
	limit, left int64
	contextErr  func() error
	stop        func() bool

	mu     sync.Mutex
	ended  bool
	closed bool
}

// Bound returns c with bounds: once ctx is done, reads and writes return its
// error, and reads past limit bytes return ErrTooMuch. Close closes c, and must be
// called.
func Bound(ctx context.Context, c net.Conn, limit int64) *Conn {
	b := &Conn{Conn: c, limit: limit, left: limit, contextErr: ctx.Err}
	b.stop = context.AfterFunc(ctx, b.end)
	return b
}

// end makes reads and writes return now and for ever.
func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if !c.closed {
		c.Conn.SetDeadline(past)
	}
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if c.left <= 0 && len(p) > 0 {
		return 0, fmt.Errorf("%w: over %d bytes", ErrTooMuch, c.limit)
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, c.explain(err)
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.explain(err)
}

// explain has the context's error in the place of the poller's.
func (c *Conn) explain(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if end := c.contextErr(); end != nil {
		return InTime(end)
	}
	return err
}

// InTime puts a person's words before context.DeadlineExceeded, and returns other
// errors as they are.
func InTime(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)
	}
	return err
}

// SetDeadline implements net.Conn; after the end of the context it does nothing.
// That matters for crypto/tls, which grants itself 5 s to say goodbye.
func (c *Conn) SetDeadline(t time.Time) error { return c.set(t, c.Conn.SetDeadline) }

// SetReadDeadline is like SetDeadline.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.set(t, c.Conn.SetReadDeadline) }

// SetWriteDeadline is like SetDeadline.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.set(t, c.Conn.SetWriteDeadline) }

func (c *Conn) set(t time.Time, to func(time.Time) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil
	}
	return to(t)
}

// Close implements net.Conn. A connection whose context is done is reset, so that
// the kernel does not go on for minutes to deliver what nobody waits for.
func (c *Conn) Close() error {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	if l, ok := c.Conn.(interface{ SetLinger(int) error }); ok && (c.ended || c.contextErr() != nil) {
		l.SetLinger(0)
	}
	return c.Conn.Close()
}
