package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// tcpChecker makes the connections of TCP. It works on a bare socket and not on
// a net.Dialer: only the creation of the socket has to happen in the namespace of
// the probes, on a thread that is locked for that long. The socket stays in its
// namespace, and the wait for the answer is the runtime poller's.
type tcpChecker struct {
	target netip.AddrPort
	addr   unix.Sockaddr
	family int
	env    Env
}

func newTCPChecker(target netip.AddrPort, env Env) (Checker, error) {
	c := &tcpChecker{target: target, env: env}
	if a := target.Addr(); a.Is4() {
		c.family = unix.AF_INET
		c.addr = &unix.SockaddrInet4{Addr: a.As4(), Port: int(target.Port())}
	} else {
		c.family = unix.AF_INET6
		c.addr = &unix.SockaddrInet6{Addr: a.As16(), Port: int(target.Port())}
	}
	return c, nil
}

// Check implements Checker.
func (c *tcpChecker) Check(ctx context.Context) (Result, error) {
	begun := time.Now()
	if err := c.connect(ctx); err != nil {
		return Result{Latency: time.Since(begun)}, fmt.Errorf("connect %v: %w", c.target, err)
	}
	return Result{Latency: time.Since(begun), Detail: "connected"}, nil
}

// connect connects and resets. No path leaves the descriptor open.
func (c *tcpChecker) connect(ctx context.Context) error {
	fd, err := c.socket()
	if err != nil {
		return local("create socket", err)
	}
	switch err := unix.Connect(fd, c.addr); {
	case err == nil, errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.EINTR):
	default:
		unix.Close(fd)
		if errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
		// Nothing has been heard of the target at this point.
		return local("connect", err)
	}
	// The file goes to the poller only now: epoll calls a socket that has not
	// begun to connect writable.
	f := os.NewFile(uintptr(fd), "tcp check")
	defer f.Close()
	return wait(ctx, f)
}

// socket returns a new non-blocking socket in the namespace of the probes.
func (c *tcpChecker) socket() (int, error) {
	fd := -1
	create := func() (err error) {
		fd, err = unix.Socket(c.family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		return os.NewSyscallError("socket", err)
	}
	enter := c.env.Enter
	if enter == nil {
		enter = func(create func() error) error { return create() }
	}
	if err := enter(create); err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return -1, err
	}
	// With these two, closing the connected socket sends a RST in the place of
	// the ACK that TCP_QUICKACK holds back.
	err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0)
	}
	if err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("setsockopt", err)
	}
	return fd, nil
}

// wait returns once f is connected, has failed, or ctx is done.
func wait(ctx context.Context, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	// A file takes no context, but a write deadline in the past ends its wait.
	stop := context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var result error
	err = raw.Write(func(fd uintptr) (done bool) {
		done, result = connected(int(fd))
		return done
	})
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("no answer in time: %w", ctx.Err())
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	return result
}

// connected reports whether the attempt to connect is over, and its error.
func connected(fd int) (done bool, err error) {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return true, os.NewSyscallError("getsockopt", err)
	}
	if code != 0 {
		return true, unix.Errno(code)
	}
	peer, err := unix.Getpeername(fd)
	if errors.Is(err, unix.ENOTCONN) {
		return false, nil
	}
	if err != nil {
		return true, os.NewSyscallError("getpeername", err)
	}
	self, err := unix.Getsockname(fd)
	if err != nil {
		return true, os.NewSyscallError("getsockname", err)
	}
	if addrPort(self) == addrPort(peer) {
		// With a target on this host and a port that the kernel may choose for
		// the probe, a connection without a listener can meet itself.
		return true, fmt.Errorf("%w (the probe met itself)", unix.ECONNREFUSED)
	}
	return true, nil
}

// addrPort returns the address in sa, the zero AddrPort for other families.
func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// local marks a fault of this host, and says what to look at where the error's
// own text does not.
func local(op string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.EMFILE):
		hint = ": lbd's limit of open files"
	case errors.Is(err, unix.EADDRNOTAVAIL):
		hint = ": no free local port or address"
	}
	return fmt.Errorf("%s: %w%s (%w)", op, err, hint, ErrLocal)
}
