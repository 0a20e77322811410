package nfqueue

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netns"
)

// Queue is a bound queue.
type Queue struct {
	number      uint16
	part, parts int
	fd          int
	bufferSize  int
	log         *slog.Logger
	counts      counters

	// running is held by Run, and by Close once the queue may go.
	running sync.Mutex
	closed  atomic.Bool
	// stop ends Run; a write to wake gets it out of poll.
	stop atomic.Bool
	wake int
}

// Open binds a queue. From then on its packets wait for Run.
//
// The error matches ErrInUse where another socket holds the number, and
// fs.ErrPermission without CAP_NET_ADMIN in the user namespace that owns the
// network namespace.
func Open(c Config) (*Queue, error) {
	c = c.filled()
	q := &Queue{
		number: c.Number, part: c.Part, parts: c.Parts, fd: -1, wake: -1,
		bufferSize: messageRoom + int(c.CopyRange),
		log:        c.Logger.With("queue", c.Number),
	}
	err := netns.In(c.NetNS, func() (err error) {
		q.fd, err = openSocket(c.ReadBuffer)
		return err
	})
	if err == nil {
		err = q.bind(c.settings())
	}
	if err == nil {
		q.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		err = os.NewSyscallError("eventfd", err)
	}
	if err != nil {
		q.closeFiles()
		return nil, fmt.Errorf("bind queue %d: %w", c.Number, bindError(c, err))
	}
	return q, nil
}

// bindError names what keeps a queue from being bound. The kernel says EPERM
// both to who may not bind any and to who asks for another's (nfqnl_recv_config).
func bindError(c Config, err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: %w", ErrInUse, err)
	case errors.Is(err, unix.EPERM):
		queues, _ := Kernel(c.NetNS)
		for _, k := range queues {
			if k.Number == c.Number {
				return fmt.Errorf("%w by netlink port %d: %w", ErrInUse, k.PortID, err)
			}
		}
		return fmt.Errorf("%w: needs CAP_NET_ADMIN", err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPROTONOSUPPORT):
		return fmt.Errorf("%w: is nfnetlink_queue loaded?", err)
	}
	return err
}

// Stats returns what was counted so far. It may be called at any time.
func (q *Queue) Stats() Stats { return q.counts.read() }

// Close ends Run, waits for it, and gives the queue back to the kernel, which
// drops the packets that still wait. It must not be called by the handler.
func (q *Queue) Close() error {
	if q.closed.Swap(true) {
		return nil
	}
	q.end()
	q.running.Lock()
	defer q.running.Unlock()
	// The kernel takes the queue back when its socket closes, too, but a process
	// that is being started has a copy of it until it executes its program.
	// An error means that there is no such queue any more.
	_, _ = unix.Write(q.fd, appendUnbind(nil, q.number))
	return q.closeFiles()
}

func (q *Queue) closeFiles() error {
	var errs []error
	for _, fd := range []int{q.fd, q.wake} {
		if fd >= 0 {
			errs = append(errs, os.NewSyscallError("close", unix.Close(fd)))
		}
	}
	return errors.Join(errs...)
}

// end makes Run return soon: at once from poll, and after receiveTimeout at most
// from a receive.
func (q *Queue) end() {
	q.stop.Store(true)
	_, _ = unix.Write(q.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}
