package dnscheck

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/hostile"
)

// bufferLen is how long UDP replies may be: servers may send more than the 512
// bytes that they are allowed to.
const bufferLen = 4096

// maxBytes is how much is read in an exchange: one message of the largest size and
// more than enough to ignore.
const maxBytes = 1 << 20

// maxIgnored is how many messages that are no replies to it an exchange puts up
// with: a server that sends nothing else must not keep a processor busy until the
// deadline.
const maxIgnored = 1000

// errTruncated is what makes the checker ask again over TCP.
var errTruncated = errors.New("the reply is truncated")

// checker asks its question whenever it is told to.
type checker struct {
	via       healthcheck.Via
	env       healthcheck.Env
	target    netip.AddrPort
	transport string
	question  question
	want      expectation
}

// Check implements healthcheck.Checker.
func (c *checker) Check(ctx context.Context) (healthcheck.Result, error) {
	begun := time.Now()
	detail, err := c.ask(ctx, c.transport)
	if errors.Is(err, errTruncated) && c.transport == UDP {
		detail, err = c.ask(ctx, TCP)
	}
	return healthcheck.Result{Latency: time.Since(begun), Detail: detail}, err
}

// ask makes one exchange and judges its reply.
func (c *checker) ask(ctx context.Context, transport string) (detail string, err error) {
	name, kind := c.question.name, typeText(c.question.kind)
	q, err := c.question.query()
	if err != nil {
		return "", fmt.Errorf("query %s %s: %w", name, kind, err)
	}
	conn, err := c.via.Dial(ctx, c.env, transport, c.target)
	if err != nil {
		return "", fmt.Errorf("query %s %s over %s: %w", name, kind, transport, err)
	}
	bound := hostile.Bound(ctx, conn, maxBytes)
	defer bound.Close()
	// A reset instead of a FIN leaves no connection in TIME_WAIT here.
	defer healthcheck.CloseAbort(conn)
	if detail, err = c.talk(bound, transport, q); err != nil {
		err = fmt.Errorf("query %s %s at %v over %s: %w", name, kind, c.target, transport, err)
	}
	return detail, err
}

// talk asks q over conn and judges the reply.
func (c *checker) talk(conn net.Conn, transport string, q query) (detail string, err error) {
	var m messages = &stream{conn: conn}
	if transport == UDP {
		m = &datagrams{conn: conn, buf: make([]byte, bufferLen+1)}
	}
	r, err := exchange(m, q)
	switch {
	case err != nil:
		return "", err
	case r.truncated:
		return "", errTruncated
	}
	return c.want.judge(r, q)
}

// messages carries whole messages.
type messages interface {
	// send is called once.
	send(msg []byte) error
	// receive returns a message that is good until the next call.
	receive() ([]byte, error)
}

// exchange sends a query and returns the reply to it.
func exchange(m messages, q query) (reply, error) {
	if err := m.send(q.wire); err != nil {
		return reply{}, ended(0, "", err)
	}
	ignored, reason := 0, notOurs("")
	for {
		msg, err := m.receive()
		if err != nil {
			return reply{}, ended(ignored, reason, err)
		}
		r, err := parseReply(msg, q)
		if !errors.As(err, &reason) {
			return r, err
		}
		if ignored++; ignored == maxIgnored {
			return reply{}, ended(ignored, reason, errors.New("too many messages that are no reply"))
		}
	}
}

// ended returns why an exchange ended with err.
func ended(ignored int, last notOurs, err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // without the addresses, which are known and differ each time
	}
	if ignored > 0 {
		return fmt.Errorf("%w (ignored %d, the last one: %s)", err, ignored, last)
	}
	return err
}

// datagrams are messages over UDP.
type datagrams struct {
	conn net.Conn // connected: the kernel drops what others send
	buf  []byte   // a byte more than a message may have
}

func (d *datagrams) send(msg []byte) error {
	_, err := d.conn.Write(msg)
	return err
}

func (d *datagrams) receive() ([]byte, error) {
	n, err := d.conn.Read(d.buf)
	switch {
	case err != nil:
		return nil, err
	case n == len(d.buf):
		return nil, fmt.Errorf("a reply of more than %d bytes", n-1)
	}
	return d.buf[:n], nil
}

// stream is messages over TCP, each with its length before it (RFC 1035,
// section 4.2.2).
type stream struct {
	conn net.Conn
	buf  []byte
}

func (s *stream) send(msg []byte) error {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(msg)))
	_, err := s.conn.Write(append(b, msg...))
	return err
}

func (s *stream) receive() ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(s.conn, length[:]); err != nil {
		return nil, cut(err)
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n > cap(s.buf) {
		s.buf = make([]byte, n)
	}
	_, err := io.ReadFull(s.conn, s.buf[:n])
	return s.buf[:n], cut(err)
}

// cut names the end of a connection in the middle of an exchange.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the server closed the connection before its reply was complete")
	}
	return err
}
