package udpcheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/expect"
	"github.com/lbd-project/lbd/healthcheck/hostile"
)

// checker is a Check of one target.
type checker struct {
	check   Check
	target  netip.AddrPort
	env     healthcheck.Env
	matcher *expect.Matcher
}

func newChecker(c Check, target netip.AddrPort, env healthcheck.Env, m *expect.Matcher) (healthcheck.Checker, error) {
	return &checker{check: c, target: target, env: env, matcher: m}, nil
}

// Check implements healthcheck.Checker. Where no reply is required, ctx needs a
// deadline: nothing else ends the silence.
func (c *checker) Check(ctx context.Context) (healthcheck.Result, error) {
	begun := time.Now()
	detail, err := c.ask(ctx)
	return healthcheck.Result{Latency: time.Since(begun), Detail: detail}, err
}

func (c *checker) ask(ctx context.Context) (detail string, err error) {
	udp, err := c.check.Via.Dial(ctx, c.env, "udp", c.target)
	if err != nil {
		return "", err
	}
	conn := hostile.Bound(ctx, udp, maxReply)
	defer conn.Close()
	if _, err := conn.Write(c.check.Payload); err != nil {
		// Nothing can have come back yet.
		return "", fmt.Errorf("send: %w (%w)", plain(err), healthcheck.ErrLocal)
	}
	end, ok := ctx.Deadline()
	if ok && !c.check.RequireReply {
		conn.SetReadDeadline(end.Add(-min(time.Until(end)/20, 100*time.Millisecond)))
	}
	data, err := receive(udp.(*net.UDPConn))
	switch {
	case err == nil:
		if err := c.check.judge(c.matcher, data); err != nil {
			return "", err
		}
		return fmt.Sprintf("a reply of %d bytes", len(data)), nil
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return "", err
	case ctx.Err() == nil:
		return "neither a reply nor an ICMP error", nil
	}
	return "", hostile.InTime(ctx.Err())
}

// receive waits for a datagram, and makes no room for it before it is there: of
// ten thousand probes most only wait.
func receive(conn *net.UDPConn) ([]byte, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var data []byte
	var failure error
	err = raw.Read(func(fd uintptr) (done bool) {
		data, failure = recv(int(fd))
		return failure != unix.EAGAIN
	})
	if err != nil {
		return nil, err
	}
	return data, failure
}

// recv returns the datagram that is there. Its errors are EAGAIN for none, and
// those that ICMP reported.
func recv(fd int) ([]byte, error) {
	for {
		n, _, err := unix.Recvfrom(fd, nil, unix.MSG_PEEK|unix.MSG_TRUNC)
		var data []byte
		if err == nil {
			// The length is a datagram's, which is at most maxReply.
			data = make([]byte, n)
			n, _, err = unix.Recvfrom(fd, data, 0)
		}
		switch {
		case err == nil:
			return data[:n], nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return nil, unix.EAGAIN
		default:
			return nil, reported(fd, err)
		}
	}
}

// plain returns err without the addresses that net puts into it.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}
