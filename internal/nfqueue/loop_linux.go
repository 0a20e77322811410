package nfqueue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// tickInterval is how often tick is called, restInterval how often after
	// restAfter calls in a row that found nothing to do, with no packet between.
	tickInterval = 5 * time.Millisecond
	restInterval = 50 * time.Millisecond
	restAfter    = 50
	// receiveTimeout is how long a receive waits before the loop turns to poll.
	receiveTimeout = 4 * time.Millisecond
	// finalBatches bounds what Run answers after it was told to end.
	finalBatches = 1024
)

// Run answers packets with the handler's verdicts until ctx is done; it then answers
// those that already wait, and returns nil. An error is the kernel's, and final:
// ErrGone, or a system call that failed.
//
// Run keeps its thread to itself. The handler and tick are called on it, never at
// the same time: tick about every 5 ms, busy or idle, and about every 50 ms while
// there is no packet and it returns that there was nothing to do. A handler that
// panics costs its packet the mark, no more; a panic of tick is not caught. The
// thread holds one of the GOMAXPROCS while packets come: a program sets it to one
// more a queue.
func (q *Queue) Run(ctx context.Context, handler Handler, tick func() (busy bool)) error {
	if !q.running.TryLock() {
		return fmt.Errorf("run queue %d: it is running", q.number)
	}
	defer q.running.Unlock()
	if q.closed.Load() {
		return fmt.Errorf("run queue %d: %w", q.number, os.ErrClosed)
	}
	ended := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() { q.end(); close(ended) })
	defer func() {
		if !unhook() {
			<-ended
		}
		if !q.closed.Load() {
			q.stop.Store(false)
			_, _ = unix.Read(q.wake, make([]byte, 8))
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer q.settle()()

	l := &loop{q: q, batch: newBatch(q.bufferSize), handler: handler}
	if err := l.run(tick); err != nil {
		return fmt.Errorf("run queue %d: %w", q.number, err)
	}
	return nil
}

// loop is one Run.
type loop struct {
	q       *Queue
	batch   *batch
	handler Handler
	faults  faults
	fds     [2]unix.PollFd
	gather  gather
}

func (l *loop) run(tick func() bool) error {
	start := time.Now()
	var last time.Duration
	idle, rest := false, 0
	for !l.q.stop.Load() {
		next := last + tickInterval
		if rest >= restAfter {
			next = last + restInterval
		}
		if !idle || l.poll(next-time.Since(start)) {
			n, err := l.once(0)
			if err != nil {
				return err
			}
			if idle = n == 0; !idle {
				rest = 0
			}
		}
		if now := time.Since(start); now >= next {
			if rest++; tick() {
				rest = 0
			}
			l.gather.look(now, now-last)
			last = now
		}
	}
	// Packets that wait would be dropped with the queue.
	for range finalBatches {
		if n, err := l.once(unix.MSG_DONTWAIT); n == 0 || err != nil {
			return err
		}
	}
	return nil
}

// once receives a batch and answers it. It returns 0 when there was none.
func (l *loop) once(flags int) (int, error) {
	if l.gather.crowd {
		begun := time.Now()
		yield()
		l.gather.waited(time.Since(begun))
	}
	n, errno := l.batch.receive(l.q.fd, flags)
	switch errno {
	case 0:
		l.gather.came(n)
		return n, l.answer(n)
	case unix.EAGAIN:
		return 0, nil
	case unix.EINTR:
		// Most likely the runtime wanted the thread to stop for a moment.
		return 0, nil
	case unix.ENOBUFS:
		l.q.counts.overruns.Add(1)
		return 0, nil
	}
	return 0, os.NewSyscallError("receive", errno)
}

// poll waits for packets or for end, and says whether packets are there.
func (l *loop) poll(d time.Duration) bool {
	l.fds[0] = unix.PollFd{Fd: int32(l.q.fd), Events: unix.POLLIN}
	l.fds[1] = unix.PollFd{Fd: int32(l.q.wake), Events: unix.POLLIN}
	ms := max(0, (d+time.Millisecond-1)/time.Millisecond)
	// An error is EINTR: the loop goes on as after the time-out.
	n, _ := unix.Poll(l.fds[:], int(ms))
	return n > 0 && l.fds[0].Revents != 0
}

// answer gives each packet of a batch its verdict.
func (l *loop) answer(n int) error {
	var gone error
	l.batch.verdicts, l.batch.packets = l.batch.verdicts[:0], l.batch.packets[:0]
	c := &l.q.counts
	c.batches.Add(1)
	packets := uint64(0)
	for i := range n {
		for b := l.batch.received(i); len(b) > 0; {
			m := &l.batch.message
			rest, err := m.decode(b)
			if err != nil {
				l.q.counts.malformed.Add(1)
				l.faults.log(l.q.log, faultMalformed, err)
			}
			switch {
			case m.hasID:
				packets++
				if err == nil {
					l.batch.packets = append(l.batch.packets, m.packet)
				} else {
					l.conclude(m.packet.ID, unmarked)
				}
			case m.kind == kindFailure:
				gone = errors.Join(gone, l.failure(m))
			}
			b = rest
		}
	}
	if len(l.batch.packets) > 0 {
		l.judge(l.batch.packets)
	}
	c.packets.Add(packets)
	if packets > 0 {
		if err := l.batch.send(l.q.fd); err != nil {
			return err
		}
		c.verdicts.Add(packets)
	}
	return gone
}

// unmarked is for packets that the handler could not decide on: the rules behind
// the queue balance what has no mark.
var unmarked = Verdict{Accept: true}

// judge has the handler decide on packets. One packet's fault must neither cost the
// others nor lose that one: if a batch makes the handler panic, each of its packets
// comes by itself.
func (l *loop) judge(packets []Packet) {
	seen := l.announce(packets)
	if !seen && len(packets) > 1 {
		for i := range packets {
			l.judge(packets[i : i+1])
		}
		return
	}
	for i := range packets {
		v := unmarked
		if seen {
			v = l.ask(i)
		}
		l.conclude(packets[i].ID, v)
	}
}

// announce tells the handler of packets, and says whether it took them.
func (l *loop) announce(packets []Packet) (ok bool) {
	defer l.contain()
	l.handler.Batch(packets)
	return true
}

// ask calls the handler for one packet of the batch.
func (l *loop) ask(i int) (v Verdict) {
	v = unmarked // after a panic
	defer l.contain()
	return l.handler.Answer(i)
}

// contain ends a panic of the handler. It is deferred.
func (l *loop) contain() {
	if r := recover(); r != nil {
		l.q.counts.panics.Add(1)
		l.faults.panicked(l.q.log, r)
	}
}

// conclude adds a verdict to those that are sent next.
func (l *loop) conclude(id uint32, v Verdict) {
	l.batch.verdicts = appendVerdict(l.batch.verdicts, l.q.number, id, v)
}

// failure counts what the kernel says of a verdict. It returns ErrGone where
// there is no queue to go on with.
func (l *loop) failure(m *message) error {
	switch errno := unix.Errno(m.errno); errno {
	case 0:
	case unix.ENOENT:
		l.q.counts.unknown.Add(1)
	case unix.ENODEV:
		return ErrGone
	default:
		l.q.counts.refused.Add(1)
		l.faults.log(l.q.log, faultRefused, errno)
	}
	return nil
}
