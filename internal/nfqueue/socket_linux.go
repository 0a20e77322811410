package nfqueue

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// openSocket returns a blocking netlink socket that hears the kernel alone. It
// stays out of Go's netpoller, which would cost a wake-up of a goroutine for
// each batch.
func openSocket(readBuffer int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	// Port 0: the kernel chooses one.
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return -1, os.NewSyscallError("bind", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return -1, os.NewSyscallError("connect", err)
	}
	// A full buffer is no error of the reader's: the kernel counts the packet as
	// dropped, or lets it pass with FailOpen. Without this option it would also
	// refuse further packets until the reader has emptied the whole buffer.
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1); err != nil {
		return -1, os.NewSyscallError("setsockopt NETLINK_NO_ENOBUFS", err)
	}
	// Errors then come without a copy of the request, so they fit any buffer.
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return -1, os.NewSyscallError("setsockopt NETLINK_CAP_ACK", err)
	}
	// Beyond net.core.rmem_max with CAP_NET_ADMIN in the initial user namespace;
	// in others as far as that goes.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, readBuffer) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, readBuffer); err != nil {
			return -1, os.NewSyscallError("setsockopt SO_RCVBUF", err)
		}
	}
	return fd, nil
}

// setReceiveTimeout bounds how long a receive waits.
func setReceiveTimeout(fd int, d time.Duration) error {
	tv := unix.NsecToTimeval(d.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return os.NewSyscallError("setsockopt SO_RCVTIMEO", err)
	}
	return nil
}

const (
	bindSequence = 1
	bindTimeout  = 5 * time.Second
)

// bind sends the request that binds the queue, and waits for its
// acknowledgement. A packet that comes before it is accepted without a mark.
func (q *Queue) bind(s settings) error {
	if err := setReceiveTimeout(q.fd, bindTimeout); err != nil {
		return err
	}
	if _, err := unix.Write(q.fd, appendBind(nil, bindSequence, s)); err != nil {
		return os.NewSyscallError("send", err)
	}
	buf := make([]byte, q.bufferSize)
	for deadline := time.Now().Add(bindTimeout); time.Now().Before(deadline); {
		n, err := unix.Read(q.fd, buf)
		switch err {
		case nil:
		case unix.EINTR:
			continue
		default:
			return os.NewSyscallError("receive", err)
		}
		var m message
		for b := buf[:n]; len(b) > 0; {
			b, err = m.decode(b)
			switch {
			case m.kind == kindFailure && m.seq == bindSequence && m.errno == 0:
				return setReceiveTimeout(q.fd, receiveTimeout)
			case m.kind == kindFailure && m.seq == bindSequence:
				return unix.Errno(m.errno)
			case m.hasID:
				q.counts.packets.Add(1)
				q.counts.verdicts.Add(1)
				v := appendVerdict(nil, q.number, m.packet.ID, Verdict{Accept: true})
				if _, err := unix.Write(q.fd, v); err != nil {
					return os.NewSyscallError("send", err)
				}
			case err != nil:
				return fmt.Errorf("answer of the kernel: %w", err)
			}
		}
	}
	return os.NewSyscallError("receive", unix.ETIMEDOUT)
}
