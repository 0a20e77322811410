package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/hostile"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
)

const (
	// defaultLimit is how many bytes a target may send in one probe of Dial's.
	defaultLimit = 1 << 20
	// patience is how long Finish waits for a target at most.
	patience = 200 * time.Millisecond
	// leftovers is how many bytes Finish reads at most.
	leftovers = 64 << 10
)

// Conn is a connection to a target. Its reads and writes return the context's
// error once the context of Dial is done, and hostile.ErrTooMuch beyond its limit.
// It is for one goroutine.
type Conn struct {
	// Conn is the TCP connection within its bounds, or TLS over that.
	net.Conn
	// tcp is what can be half closed.
	tcp net.Conn
}

// Dial connects to target, which may send 1 MiB. The errors are those of Via.Dial.
func Dial(ctx context.Context, via healthcheck.Via, env healthcheck.Env, target netip.AddrPort) (*Conn, error) {
	return DialLimit(ctx, via, env, target, defaultLimit)
}

// DialLimit is like Dial for a target that may send limit bytes.
func DialLimit(ctx context.Context, via healthcheck.Via, env healthcheck.Env, target netip.AddrPort, limit int64) (*Conn, error) {
	tcp, err := via.Dial(ctx, env, "tcp", target)
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: hostile.Bound(ctx, tcp, limit), tcp: tcp}, nil
}

// StartTLS makes a handshake. From then on c is the TLS connection. Before it, c
// must have read no more than the target's answer in the clear.
func (c *Conn) StartTLS(ctx context.Context, config *tls.Config) (tls.ConnectionState, error) {
	secure, err := tlsopt.Client(ctx, c.Conn, config)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	c.Conn = secure
	return secure.ConnectionState(), nil
}

// Finish ends the conversation and closes the connection: close_notify, FIN, and
// what the target still sends is read until it closes too. An unread byte would
// make the kernel send a RST, which servers log; with TLS 1.3 a session ticket
// is on its way after every handshake. Finish waits 200 ms for the target at
// most, and half of the time left at most, so that the probe ends before its
// deadline.
//
// Finish returns the alert of a server that, in TLS 1.3, does not like the
// client's certificate or the lack of one: only now has it said so. It returns no
// other error.
func (c *Conn) Finish(ctx context.Context) error {
	return refusal(c.finish(ctx))
}

// finish returns how the target's side of the conversation ended, io.EOF where it
// has closed.
func (c *Conn) finish(ctx context.Context) error {
	defer c.Close()
	if err := ctx.Err(); err != nil {
		return err
	}
	if t, ok := c.Conn.(*tls.Conn); ok {
		t.CloseWrite()
	}
	if t, ok := c.tcp.(*net.TCPConn); ok {
		t.CloseWrite()
	}
	return c.drain(ctx)
}

// Hangup waits, as long as Finish, for a target that has been told to close. The
// side that closes first keeps the connection for a minute (TIME_WAIT), so that
// had better be the target.
func (c *Conn) Hangup(ctx context.Context) {
	if ctx.Err() == nil {
		c.drain(ctx)
	}
}

// drain reads until the target closes.
func (c *Conn) drain(ctx context.Context) error {
	wait := Share(ctx, patience)
	c.SetReadDeadline(time.Now().Add(wait))
	_, err := io.CopyN(io.Discard, c.Conn, leftovers)
	if t, ok := c.Conn.(*tls.Conn); ok && errors.Is(err, io.EOF) {
		// That was its close_notify. The FIN follows, of some servers only once
		// they have the answer.
		t.CloseWrite()
		io.CopyN(io.Discard, c.tcp, leftovers)
	}
	return err
}

// Share returns most, or half of the time that ctx has left if that is less.
func Share(ctx context.Context, most time.Duration) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(0, min(most, time.Until(end)/2))
	}
	return most
}

// refusal returns err if it is a TLS alert of the target's.
func refusal(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return fmt.Errorf("TLS: %w", tlsopt.Explain(err))
	}
	return nil
}

// Explain returns err without the addresses that net puts into it, among them a
// port that is another one in each probe, and with words for the end of the
// stream.
func Explain(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the target closed the connection: %w", err)
	case errors.As(err, &op) && op.Op == "remote error":
		return fmt.Errorf("TLS: %w", tlsopt.Explain(err))
	case errors.As(err, &op) && op.Err != nil:
		return op.Err
	}
	return err
}
