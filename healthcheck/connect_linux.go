package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// connect connects fd, a bare socket, and returns it as a file, on which the
// runtime's poller has waited. It works on a socket and not on a net.Dialer: only
// the creation of the socket has to happen in the namespace of the probes, on a
// thread that is locked for that long. It closes fd when it fails.
func connect(ctx context.Context, fd int, sa unix.Sockaddr) (*os.File, error) {
	if err := begin(fd, sa); err != nil {
		unix.Close(fd)
		return nil, err
	}
	f, err := await(ctx, fd)
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// begin begins to connect.
func begin(fd int, sa unix.Sockaddr) error {
	switch err := unix.Connect(fd, sa); {
	case err == nil, errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.EINTR):
		return nil
	case errors.Is(err, unix.ECONNREFUSED):
		return err
	default:
		// Nothing has been heard of the target at this point.
		return local("connect", err)
	}
}

// await makes fd, which has begun to connect, a file, and waits for the end of
// that. The file is there with an error too.
func await(ctx context.Context, fd int) (*os.File, error) {
	// The file goes to the poller only now: epoll calls a socket that has not
	// begun to connect writable.
	f := os.NewFile(uintptr(fd), "check")
	return f, wait(ctx, f)
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
	// These of package unix ask for the socket's protocol too, each time.
	peer, err := syscall.Getpeername(fd)
	if errors.Is(err, unix.ENOTCONN) {
		return false, nil
	}
	if err != nil {
		return true, os.NewSyscallError("getpeername", err)
	}
	self, err := syscall.Getsockname(fd)
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
func addrPort(sa syscall.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *syscall.SockaddrInet6:
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
