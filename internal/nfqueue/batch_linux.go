package nfqueue

import (
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// batchSize is how many packets one system call receives at most.
	batchSize = 64
	// messageRoom is room for a message beside the payload: its headers and
	// attributes take about 200 bytes today.
	messageRoom = 896
)

// mmsghdr is struct mmsghdr of recvmmsg(2). Go pads it as C does.
type mmsghdr struct {
	header unix.Msghdr
	length uint32
}

// batch is the memory of one receive and of the verdicts on it.
type batch struct {
	headers  []mmsghdr
	iovecs   []unix.Iovec
	buffers  []byte
	size     int
	verdicts []byte
	message  message
	// packets are those that the handler decides on.
	packets []Packet
}

func newBatch(bufferSize int) *batch {
	b := &batch{
		headers:  make([]mmsghdr, batchSize),
		iovecs:   make([]unix.Iovec, batchSize),
		buffers:  make([]byte, batchSize*bufferSize),
		size:     bufferSize,
		verdicts: make([]byte, 0, batchSize*verdictLen),
		packets:  make([]Packet, 0, batchSize),
	}
	for i := range b.headers {
		b.iovecs[i].Base = &b.buffers[i*bufferSize]
		b.iovecs[i].SetLen(bufferSize)
		b.headers[i].header.Iov = &b.iovecs[i]
		b.headers[i].header.SetIovlen(1)
	}
	return b
}

// received returns the i-th datagram of the last receive.
func (b *batch) received(i int) []byte {
	n := min(int(b.headers[i].length), b.size)
	return b.buffers[i*b.size:][:n:n]
}

// receive waits for a datagram, up to the socket's time-out, and takes with it
// what else is there.
//
// The raw system call keeps the processor's P: entering and leaving the
// scheduler costs more than most waits. It holds up nobody for long, since the
// runtime's preemption signal ends it: a receive with a time-out is never
// restarted (signal(7)).
func (b *batch) receive(fd, flags int) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&b.headers[0])), batchSize, uintptr(unix.MSG_WAITFORONE|flags), 0, 0)
	runtime.KeepAlive(b)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// yield has the other programs of this processor run first: what they send meanwhile
// comes with the next receive. The first yield may choose this thread again, which
// has run the least; the second does not.
func yield() {
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}

// sendAttempts bounds how often a batch of verdicts is sent that the kernel has
// no memory for.
const sendAttempts = 50

// send hands the verdicts to the kernel, which passes the packets on within the
// call. That takes less than a millisecond for the largest batch, which the
// garbage collector can wait: a call that gave the P away would have the
// runtime's monitor take it, and wake up some thousand times a second for that.
func (b *batch) send(fd int) error {
	for attempt := 0; ; attempt++ {
		_, _, err := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b.verdicts[0])), uintptr(len(b.verdicts)))
		switch {
		case err == 0:
			return nil
		case err == unix.EINTR:
		case (err == unix.ENOBUFS || err == unix.ENOMEM || err == unix.EAGAIN) && attempt < sendAttempts:
			time.Sleep(time.Millisecond)
		default:
			return os.NewSyscallError("send", err)
		}
	}
}
