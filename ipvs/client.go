package ipvs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	// callTimeout bounds the wait for an answer. The kernel answers at once, so
	// a longer wait is a fault.
	callTimeout = 5 * time.Second
	// maxDumps bounds how often a dump that the table changed under is repeated.
	maxDumps = 5
	// readBufferSize is what a datagram is read into. The kernel makes dumps as
	// large as the reader's buffer, up to 32 KiB (netlink_recvmsg).
	readBufferSize = 64 << 10
)

// Client reads and writes the IPVS table of one network namespace. Its methods
// are safe for concurrent use; they run one after the other. Every method with a
// context returns early when it ends.
//
// All errors are *Error, or *BatchError from Apply. Beyond the sentinels, they
// unwrap to the errno that the kernel answered with. Any method can fail with
// ErrNotAvailable: the kernel has no IPVS or its module cannot be loaded.
type Client struct {
	dial func() (*link, error)
	proc procOpener
	// lock is held by one call at a time: a channel, for waiting with a context.
	lock   chan struct{}
	closed bool
	link   *link // nil until it is needed and after a fault

	// Buffers, reused by the call that holds the lock.
	wbuf  []byte
	rbuf  []byte
	index []int // of the operations in wbuf
	// datagrams counts those of the current dump. The kernel fills each under
	// one lock, so only a dump of several can have a double or a gap.
	datagrams int
	names     names
	servers   int // how many the last table had

	// Counts asks the kernel with reader, which has a socket of its own: it would
	// wait for a running Apply otherwise. Nil in reader itself.
	counts countsReader
	reader *Client
}

// link is an open socket and what was asked of the kernel on it.
type link struct {
	conn   conn
	family uint16 // the family's number; another one after the module was reloaded
	seq    uint32
	// limits of one send
	maxOps, maxBytes int
}

// conn is a netlink socket that hears only the kernel.
type conn interface {
	// send sends whole messages in one datagram.
	send(b []byte) error
	// receive reads one datagram.
	receive(b []byte) (int, error)
	// resolve asks for the number of the IPVS family; os.ErrNotExist for none.
	resolve() (uint16, error)
	setReadDeadline(t time.Time) error
	close() error
}

func newClient(dial func() (*link, error), proc procOpener) *Client {
	c := newSocket(dial)
	c.proc = proc
	c.counts = newCountsReader(proc)
	c.reader = newSocket(dial)
	return c
}

// newSocket returns a client that has no files of /proc.
func newSocket(dial func() (*link, error)) *Client {
	return &Client{
		dial:  dial,
		lock:  make(chan struct{}, 1),
		rbuf:  make([]byte, readBufferSize),
		names: make(names),
	}
}

// Close releases the client's descriptors. A call that is running ends first;
// later calls fail.
func (c *Client) Close() error {
	if !c.shut() {
		return nil
	}
	c.reader.shut()
	c.counts.close()
	return c.proc.close()
}

// shut closes the socket for good and reports whether that was still to be done.
func (c *Client) shut() bool {
	c.lock <- struct{}{}
	defer func() { <-c.lock }()
	if c.closed {
		return false
	}
	c.closed = true
	c.drop()
	return true
}

// drop gives up the socket: what arrives on it can no longer be told apart.
func (c *Client) drop() {
	if c.link != nil {
		c.link.conn.close()
		c.link = nil
	}
}

// run calls fn with the client locked, the socket open and ctx able to interrupt
// a receive. It is the one place that decides what becomes of the socket: unless
// the kernel itself answered with the error, it is replaced.
func (c *Client) run(ctx context.Context, fn func() error) error {
	return c.locked(ctx, func() error {
		if err := c.connect(); err != nil {
			return err
		}
		conn := c.link.conn
		interrupted := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(interrupted)
			conn.setReadDeadline(time.Unix(1, 0))
		})
		defer func() {
			if !stop() {
				<-interrupted // or it would hit the next call
			}
		}()
		err := c.retryFamily(fn)
		if err == nil {
			return nil
		}
		if _, ok := errors.AsType[*kernelError](err); !ok {
			c.drop()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		return err
	})
}

// locked calls fn with the client locked and open.
func (c *Client) locked(ctx context.Context, fn func() error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	select {
	case c.lock <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.lock }()
	if c.closed {
		return os.ErrClosed
	}
	return fn()
}

// connect opens the socket if there is none.
func (c *Client) connect() error {
	if c.link != nil {
		return nil
	}
	l, err := c.dial()
	if err != nil {
		return err
	}
	if err := l.resolve(); err != nil {
		l.conn.close()
		return err
	}
	c.link = l
	return nil
}

// resolve asks for the number of the family, which makes the kernel load the
// module if it can.
func (l *link) resolve() error {
	if err := l.conn.setReadDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	id, err := l.conn.resolve()
	if errors.Is(err, os.ErrNotExist) {
		return &kernelError{sentinel: ErrNotAvailable, hint: "is ip_vs loaded?", cause: err}
	}
	if err != nil {
		return fmt.Errorf("look up family %s: %w", familyName, err)
	}
	l.family = id
	return nil
}

// retryFamily calls fn again, once, if its error is that the family has got
// another number: ENOENT is how netlink answers for a number that it does not
// know, whatever the command.
func (c *Client) retryFamily(fn func() error) error {
	err := fn()
	if !isKernelErrno(err, syscall.ENOENT) {
		return err
	}
	moved, rerr := c.familyMoved()
	switch {
	case rerr != nil:
		return rerr
	case moved:
		return fn()
	}
	return err
}

// familyMoved asks for the number of the family again and reports whether it is
// another one.
func (c *Client) familyMoved() (bool, error) {
	old := c.link.family
	if err := c.link.resolve(); err != nil {
		return false, err
	}
	return c.link.family != old, nil
}

// isKernelErrno reports whether the kernel answered with errno.
func isKernelErrno(err error, errno syscall.Errno) bool {
	k, ok := errors.AsType[*kernelError](err)
	return ok && errors.Is(k.cause, errno)
}

// nextSeq reserves n sequence numbers and returns the first.
func (l *link) nextSeq(n int) uint32 {
	first := l.seq + 1
	l.seq += uint32(n)
	return first
}

// receive reads datagrams and calls handle for each message in them until it
// says that it is done. It fails if nothing comes for callTimeout.
func (c *Client) receive(ctx context.Context, handle func(*message) (done bool, err error)) error {
	for {
		if err := c.link.conn.setReadDeadline(time.Now().Add(callTimeout)); err != nil {
			return err
		}
		// The context may have ended before that, and its past deadline be lost.
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := c.link.conn.receive(c.rbuf)
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
			return fmt.Errorf("no answer from the kernel in %v: %w", callTimeout, err)
		}
		if err != nil {
			return err
		}
		c.datagrams++
		done := false
		b := c.rbuf[:n]
		var m message
		for len(b) > 0 {
			if b, err = m.parse(b); err != nil {
				return err
			}
			if m.typ == nlmsgNoop {
				continue
			}
			if done {
				return errUnexpected
			}
			if done, err = handle(&m); err != nil {
				return err
			}
		}
		if done {
			return nil
		}
	}
}
