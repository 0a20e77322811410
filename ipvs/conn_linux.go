package ipvs

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// maxBatch is how many requests one send has at most. More save nothing:
	// measured, 1,000 a send are 5 % faster than 100.
	maxBatch = 1000
	// maxBatchBytes is below the default limit of a send, 208 KiB, so that
	// batches do not depend on a larger send buffer.
	maxBatchBytes = 160 << 10
	// receiveBuffer has room for an answer to each request of a batch.
	receiveBuffer = maxBatch * answerSpace
	// answerSpace is what one answer takes of the receive buffer: 36 bytes of
	// data, but the kernel counts the whole buffer that they lie in.
	answerSpace = 4 << 10
)

// socketConn is a netlink socket.
type socketConn struct {
	nl  *netlink.Conn
	raw syscall.RawConn

	// The callbacks of raw are made once, and given their arguments here.
	b       []byte
	n       int
	err     error
	readFn  func(fd uintptr) bool
	writeFn func(fd uintptr) bool
}

// dial opens a socket in the thread's network namespace.
func dial() (*link, error) {
	nl, err := netlink.Dial(unix.NETLINK_GENERIC, &netlink.Config{MessageBufferSize: readBufferSize})
	if err != nil {
		return nil, err
	}
	l, err := newLink(nl)
	if err != nil {
		nl.Close()
		return nil, err
	}
	return l, nil
}

func newLink(nl *netlink.Conn) (*link, error) {
	raw, err := nl.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &socketConn{nl: nl, raw: raw}
	c.readFn, c.writeFn = c.read, c.write
	// A connected netlink socket hears its peer alone, the kernel, and needs no
	// address in a send.
	cerr := raw.Control(func(fd uintptr) {
		err = unix.Connect(int(fd), &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	})
	if err := errors.Join(cerr, os.NewSyscallError("connect", err)); err != nil {
		return nil, err
	}
	// Answers without the request and with the kernel's words, where it can.
	_ = nl.SetOption(netlink.CapAcknowledge, true)
	_ = nl.SetOption(netlink.ExtendedAcknowledge, true)
	_ = nl.SetReadBuffer(receiveBuffer)
	read, err := nl.ReadBuffer()
	if err != nil {
		return nil, err
	}
	write, err := nl.WriteBuffer()
	if err != nil {
		return nil, err
	}
	return &link{
		conn:     c,
		maxOps:   max(1, min(maxBatch, read/answerSpace)),
		maxBytes: min(maxBatchBytes, write-64), // netlink_sendmsg keeps 32 bytes
	}, nil
}

// read and write return false to be called again when the socket is ready. After
// EINTR it may be ready already, and then nothing would wake them.

func (c *socketConn) read(fd uintptr) bool {
	for {
		c.n, c.err = unix.Read(int(fd), c.b)
		if c.err != unix.EINTR {
			return c.err != unix.EAGAIN
		}
	}
}

func (c *socketConn) write(fd uintptr) bool {
	for {
		c.n, c.err = unix.Write(int(fd), c.b)
		if c.err != unix.EINTR {
			return c.err != unix.EAGAIN
		}
	}
}

func (c *socketConn) receive(b []byte) (int, error) {
	c.b = b
	if err := c.raw.Read(c.readFn); err != nil {
		return 0, err
	}
	if c.err != nil {
		return 0, os.NewSyscallError("read", c.err)
	}
	return c.n, nil
}

func (c *socketConn) send(b []byte) error {
	c.b = b
	if err := c.raw.Write(c.writeFn); err != nil {
		return err
	}
	return os.NewSyscallError("write", c.err)
}

func (c *socketConn) resolve() (uint16, error) {
	f, err := genetlink.NewConn(c.nl).GetFamily(familyName)
	return f.ID, err
}

func (c *socketConn) setReadDeadline(t time.Time) error { return c.nl.SetReadDeadline(t) }

func (c *socketConn) close() error { return c.nl.Close() }
