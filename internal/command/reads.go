package command

import "sync"

// maxReads is how many programs are read at once: the Go runtime ends a program
// with 10,000 threads.
const maxReads = 1000

// Reads are the reads of programs that are about to be started. Nothing ends one
// whose file system does not answer, and each takes a thread. So there is one for
// each path at a time, whichever Commands wait for it, and 1000 together.
type Reads struct {
	places chan struct{}

	mu    sync.Mutex
	under map[string]*read
}

// read is one of them.
type read struct {
	// done is closed at its end.
	done chan struct{}
}

// NewReads returns Reads of which none is under way.
func NewReads() *Reads { return newReads(maxReads) }

func newReads(most int) *Reads {
	return &Reads{places: make(chan struct{}, most), under: make(map[string]*read)}
}

// join returns the read of a path that is under way, or begins one.
func (r *Reads) join(path string, touch func()) *read {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now, ok := r.under[path]; ok {
		return now
	}
	now := &read{done: make(chan struct{})}
	r.under[path] = now
	go func() {
		r.places <- struct{}{}
		touch()
		<-r.places
		r.mu.Lock()
		delete(r.under, path)
		r.mu.Unlock()
		close(now.done)
	}()
	return now
}

// over says whether it has ended; one that never began has.
func (r *read) over() bool {
	if r == nil {
		return true
	}
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}
