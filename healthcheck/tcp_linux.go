package healthcheck

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// tcpChecker makes the connections of TCP.
type tcpChecker struct {
	via    Via
	target netip.AddrPort
	env    Env
}

func newTCPChecker(via Via, target netip.AddrPort, env Env) (Checker, error) {
	return &tcpChecker{via: via, target: target, env: env}, nil
}

// Check implements Checker.
func (c *tcpChecker) Check(ctx context.Context) (Result, error) {
	begun := time.Now()
	if err := c.connect(ctx); err != nil {
		return Result{Latency: time.Since(begun)}, fmt.Errorf("connect %s: %w", c.env.Through.Name(c.target), c.env.explain(err))
	}
	return Result{Latency: time.Since(begun), Detail: "connected"}, nil
}

// connect connects and resets. No path leaves the descriptor open.
func (c *tcpChecker) connect(ctx context.Context) error {
	domain, sa := socketAddress(c.target)
	fd, err := c.via.Socket(c.env, domain, unix.SOCK_STREAM, unix.IPPROTO_TCP)
	if err != nil {
		return err
	}
	if err := c.prepare(fd); err != nil {
		unix.Close(fd)
		return err
	}
	if err := begin(fd, sa); err != nil {
		unix.Close(fd)
		return err
	}
	// A target on this host has answered by now. To know that without the
	// runtime's poller is half of what such a check takes.
	if done, err := connected(fd); done {
		unix.Close(fd)
		return err
	}
	f, err := await(ctx, fd)
	f.Close()
	return err
}

// prepare makes closing the connected socket send a RST in the place of the ACK
// that TCP_QUICKACK holds back.
func (c *tcpChecker) prepare(fd int) error {
	err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0)
	}
	if err != nil {
		return local("prepare socket", os.NewSyscallError("setsockopt", err))
	}
	return c.via.leave(c.env, fd, unix.SOCK_STREAM, c.target)
}
