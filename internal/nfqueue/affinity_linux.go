package nfqueue

import "golang.org/x/sys/unix"

// maxProcessors is how many a unix.CPUSet can name.
const maxProcessors = 1024

// settle keeps the thread to the processors of the queue's part, and returns what
// takes that back. Where none of them is the thread's to use it stays free, as it
// does where the kernel refuses: it is slower then, no more.
func (q *Queue) settle() (restore func()) {
	var before unix.CPUSet
	if q.parts == 0 || unix.SchedGetaffinity(0, &before) != nil {
		return func() {}
	}
	own := partOf(&before, q.part, q.parts)
	if own.Count() == 0 || unix.SchedSetaffinity(0, &own) != nil {
		return func() {}
	}
	return func() { _ = unix.SchedSetaffinity(0, &before) }
}

// partOf returns the processors of a set whose number modulo parts is part.
func partOf(set *unix.CPUSet, part, parts int) (own unix.CPUSet) {
	for i := part; i < maxProcessors; i += parts {
		if set.IsSet(i) {
			own.Set(i)
		}
	}
	return own
}
