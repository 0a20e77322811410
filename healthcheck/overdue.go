package healthcheck

import (
	"container/heap"
	"context"
	"errors"
	"time"
)

// overrun is how long after its deadline a checker may return. One that has not by
// then is overdue: it gives its place away, each interval counts as a failure of
// its probe until it returns, and it costs a goroutine, perhaps a thread.
const overrun = time.Second

// The results of probes whose checker does not return.
var (
	errOverrun = errors.New("the check ignores its deadline and still runs")
	errBehind  = errors.New("not begun: an earlier check of the same still runs, long after its deadline")
)

// overdue are the checkers that do not return.
type overdue struct {
	total int
	// left counts those whose probe was removed, by the probe's subject: a new
	// probe of the same would get stuck in the same way, with each Set anew.
	left map[string]int
}

// add counts the run of p, or no longer with -1.
func (o *overdue) add(p *probe, n int) {
	o.total += n
	if p.removed {
		o.leave(p, n)
	}
}

// leave counts the run of p as one of a removed probe, or no longer with -1.
func (o *overdue) leave(p *probe, n int) {
	s := p.Subject()
	if o.left[s] += n; o.left[s] == 0 {
		delete(o.left, s)
	}
}

// bars returns why p must not begin, or nil.
func (o *overdue) bars(p *probe) error {
	// The subject takes time to make, and mostly nothing is left.
	if len(o.left) > 0 && o.left[p.Subject()] > 0 {
		return errBehind
	}
	return nil
}

// giveUp takes the run of p for overdue and gives its place away. The log is told.
// The caller holds mu.
func (m *Monitor) giveUp(run context.Context, p *probe, now time.Time) {
	p.overran, p.complaint = true, true
	m.stats.overdue.add(p, 1)
	m.release(run, now)
	m.tell(p)
}

// part stops the run of p, which was removed. It stays in the queue until the run
// ends, or is overdue. The caller holds mu.
func (m *Monitor) part(p *probe, now time.Time) {
	p.cancel()
	switch {
	case p.overran:
		m.stats.overdue.leave(p, 1)
		m.unqueue(p)
	case p.index >= 0:
		p.due = now.Add(overrun)
		heap.Fix(&m.queue, p.index)
	}
}

// unqueue takes p out of the queue if it is there. The caller holds mu.
func (m *Monitor) unqueue(p *probe) {
	if p.index >= 0 {
		heap.Remove(&m.queue, p.index)
	}
}

// join waits until all checkers have returned, and leaves those behind that are
// overdue: nothing ends a thread that waits for a dead disk but the end of the
// process, which must not wait for it.
func (m *Monitor) join() {
	done := make(chan struct{})
	go func() {
		m.workers.Wait()
		close(done)
	}()
	timer := time.NewTimer(overrun)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		m.mu.Lock()
		n := m.stats.running + m.stats.overdue.total
		m.mu.Unlock()
		m.log.Error("left checkers behind that ignore their deadline", "checkers", n)
	}
}
