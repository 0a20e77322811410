package conntrack

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// dumpBufferSize holds the largest piece of a dump: the kernel makes pieces of
	// what was offered to it before, up to 32 KiB (net/netlink/af_netlink.c,
	// netlink_recvmsg), and larger ones mean fewer calls.
	dumpBufferSize = 64 << 10

	// answerWait is how long one receive blocks, so that a done context is seen.
	// The kernel answers within the send, so only a broken socket waits.
	answerWait = 100 // ms
)

// socket carries one exchange at a time.
type socket struct {
	fd  int
	seq uint32
	buf []byte
}

// openSocket opens a socket for requests in the thread's namespace.
func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	wait := unix.NsecToTimeval(answerWait * 1e6)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("setsockopt SO_RCVTIMEO", err)
	}
	return &socket{fd: fd, buf: make([]byte, dumpBufferSize)}, nil
}

func (s *socket) close() { unix.Close(s.fd) }

// errUndone marks an exchange that ended before its last answer: the socket must
// not be used again.
var errUndone = errors.New("exchange not done")

// exchange sends a request and gives its answers to each. interrupted is that of
// the answers. The error matches errUndone where the last answer did not come.
func (s *socket) exchange(ctx context.Context, req []byte, each func(*message) error) (interrupted bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := unix.Sendto(s.fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, errors.Join(hint(os.NewSyscallError("sendto", err)), errUndone)
	}
	a := answers{seq: s.seq, each: each}
	for last := false; !last; {
		b, err := s.receive(ctx)
		if err == nil {
			last, err = a.take(b)
		}
		if err != nil {
			return a.interrupted, errors.Join(err, a.failed, errUndone)
		}
	}
	return a.interrupted, a.failed
}

// receive returns one datagram of the kernel's.
func (s *socket) receive(ctx context.Context) ([]byte, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, from, err := unix.Recvfrom(s.fd, s.buf, unix.MSG_TRUNC)
		switch err {
		case nil:
		case unix.EAGAIN, unix.EINTR:
			continue
		default:
			return nil, os.NewSyscallError("recvfrom", err)
		}
		if sa, ok := from.(*unix.SockaddrNetlink); !ok || sa.Pid != 0 {
			continue // Another program's, not the kernel's.
		}
		if n > len(s.buf) {
			return nil, malformed("%d bytes in one datagram", n)
		}
		return s.buf[:n], nil
	}
}

// wrap names the operation of an error.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("conntrack: %s: %w", op, err)
}
