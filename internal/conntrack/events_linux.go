package conntrack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netns"
)

// Groups are multicast groups of events.
type Groups uint8

// The groups.
const (
	News     Groups = 1 << iota // NFNLGRP_CONNTRACK_NEW
	Updates                     // NFNLGRP_CONNTRACK_UPDATE
	Destroys                    // NFNLGRP_CONNTRACK_DESTROY
)

const (
	// DefaultReadBuffer is the receive buffer in bytes. The kernel allows twice
	// that, bookkeeping included, and an event takes 1,280 bytes of it (6.18), so
	// this holds a burst of 100,000.
	DefaultReadBuffer = 64 << 20

	// DrainLimit is how many datagrams one Drain reads at most.
	DrainLimit = 1024

	// eventBatch datagrams come with one system call. An event has 200 to 400
	// bytes, with a label and a security context still fewer than 1 KiB.
	eventBatch      = 64
	eventBufferSize = 4 << 10

	// loadTimeout bounds the wait for an answer. Loading itself is within the send.
	loadTimeout = 10 * time.Second
)

// EventConfig is what OpenEvents needs.
type EventConfig struct {
	// NetNS is a file descriptor of the network namespace, which is not kept;
	// negative for the calling thread's.
	NetNS int
	// ReadBuffer is the receive buffer in bytes; zero for DefaultReadBuffer.
	ReadBuffer int
	// Groups are what is listened to; zero is an error.
	Groups Groups
}

// Events receives events. Its methods must not run at the same time. The socket
// stays out of the runtime's poller, for a thread that drains it in between
// other work.
type Events struct {
	fd         int
	groups     []int // that it is in
	readBuffer int
	scanner
	headers []mmsghdr
	iovecs  []unix.Iovec
	from    []unix.RawSockaddrNetlink
	buf     []byte
}

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	unix.Msghdr
	length uint32
}

// OpenEvents opens a socket for events. Only events of flows that the kernel
// made events for are there: see net.netfilter.nf_conntrack_events and the
// statement "ct event set" of nftables.
func OpenEvents(c EventConfig) (*Events, error) {
	if c.Groups&(News|Updates|Destroys) == 0 {
		return nil, wrap("open events", errors.New("no groups"))
	}
	if c.ReadBuffer == 0 {
		c.ReadBuffer = DefaultReadBuffer
	}
	e := &Events{fd: -1}
	err := netns.In(c.NetNS, func() error {
		if err := loadModule(); err != nil {
			return err
		}
		return e.open(&c)
	})
	if err != nil {
		e.Close()
		return nil, wrap("open events", hint(err))
	}
	e.headers = make([]mmsghdr, eventBatch)
	e.iovecs = make([]unix.Iovec, eventBatch)
	e.from = make([]unix.RawSockaddrNetlink, eventBatch)
	e.buf = make([]byte, eventBatch*eventBufferSize)
	for i := range e.headers {
		e.iovecs[i].Base = &e.buf[i*eventBufferSize]
		e.iovecs[i].SetLen(eventBufferSize)
		h := &e.headers[i].Msghdr
		h.Iov = &e.iovecs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&e.from[i]))
	}
	return e, nil
}

// loadModule makes a request, so that the kernel has nf_conntrack_netlink before
// it returns. Joining a group loads the module too, but does not wait for it
// (net/netfilter/nfnetlink.c, nfnetlink_bind), and until it is there events go
// nowhere and nobody is told.
func loadModule() error {
	s, err := openSocket()
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	_, err = s.exchange(ctx, globalStatsRequest(s.seq), nil)
	return err
}

func (e *Events) open(c *EventConfig) (err error) {
	e.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	// The kernel doubles the value for its bookkeeping, and gives it back doubled.
	err = unix.SetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, c.ReadBuffer)
	if errors.Is(err, unix.EPERM) {
		// Bounded by net.core.rmem_max. Callers see it in ReadBuffer.
		err = unix.SetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, c.ReadBuffer)
	}
	if err != nil {
		return os.NewSyscallError("setsockopt SO_RCVBUFFORCE", err)
	}
	size, err := unix.GetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return os.NewSyscallError("getsockopt SO_RCVBUF", err)
	}
	e.readBuffer = size / 2
	if err := unix.Bind(e.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	// Never NETLINK_NO_ENOBUFS, which hides losses, nor NETLINK_BROADCAST_ERROR,
	// which makes the kernel drop packets instead of events.
	for bit, group := range map[Groups]int{News: groupNew, Updates: groupUpdate, Destroys: groupDestroy} {
		if c.Groups&bit == 0 {
			continue
		}
		if err := unix.SetsockoptInt(e.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group); err != nil {
			return fmt.Errorf("join group %d: %w", group, os.NewSyscallError("setsockopt", err))
		}
		e.groups = append(e.groups, group)
	}
	return nil
}

// FD returns the socket, readable when there are events or an overrun. It is the
// Events' own.
func (e *Events) FD() int { return e.fd }

// ReadBuffer returns the size of the receive buffer in bytes, which is less than
// was asked for where the process may not exceed net.core.rmem_max.
func (e *Events) ReadBuffer() int { return e.readBuffer }

// Stats returns the totals.
func (e *Events) Stats() EventStats { return e.stats }

// Close leaves the groups and closes the socket. Closing it alone would not do: a
// process that is being started has a copy of it until it executes its program, and
// Listeners would take that for another program's.
func (e *Events) Close() error {
	if e.fd < 0 {
		return nil
	}
	fd := e.fd
	e.fd = -1
	for _, group := range e.groups {
		_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_DROP_MEMBERSHIP, group)
	}
	return os.NewSyscallError("close", unix.Close(fd))
}

// Drain hands on what is queued and returns how many datagrams that was, skipped
// ones included. It never blocks, and stops after DrainLimit datagrams: when n
// is DrainLimit there may be more. A handler must not keep the event.
//
// It returns ErrOverrun once after each run of losses, as soon as it has drained
// the queue: until then the kernel drops every further event, so that a dump
// which begins after ErrOverrun misses none. Any other error is the socket's
// end.
func (e *Events) Drain(handle func(*Event)) (n int, err error) {
	for n < DrainLimit {
		got, errno := e.receive(min(eventBatch, DrainLimit-n))
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		case unix.ENOBUFS:
			e.overran()
			continue
		case unix.EAGAIN:
			if e.overrun {
				e.overrun = false
				return n, wrap("read events", ErrOverrun)
			}
			return n, nil
		default:
			return n, wrap("read events", os.NewSyscallError("recvmmsg", errno))
		}
		for i := range e.headers[:got] {
			e.datagram(i, handle)
		}
		n += got
	}
	return n, nil
}

// receive reads up to limit datagrams. A raw call does not tell the scheduler:
// the call does not block, and a hot loop has no use for being preempted by it.
func (e *Events) receive(limit int) (int, unix.Errno) {
	for i := range e.headers[:limit] {
		e.headers[i].Namelen = unix.SizeofSockaddrNetlink
		e.headers[i].Flags = 0
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(e.fd),
		uintptr(unsafe.Pointer(&e.headers[0])), uintptr(limit), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func (e *Events) datagram(i int, handle func(*Event)) {
	h := &e.headers[i]
	if e.from[i].Pid != 0 {
		return // Another program's, not the kernel's.
	}
	if h.Flags&unix.MSG_TRUNC != 0 || h.length > eventBufferSize {
		e.stats.Malformed++
		return
	}
	start := i * eventBufferSize
	e.scan(e.buf[start:start+int(h.length)], handle)
}
