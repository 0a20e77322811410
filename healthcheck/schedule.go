package healthcheck

import (
	"container/heap"
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"
)

const (
	// slack is how much too early a probe may start, so that one wake-up serves
	// all that are due about now. It is the shortest interval too.
	slack = time.Millisecond
	// maxIdle is the longest time between two ticks: Stats.LastTick shows that
	// the scheduler is alive.
	maxIdle = time.Second
	// startGap is the mean time between the first runs of probes that are added
	// together: few probes decide at once, ten thousand within a second.
	startGap = 100 * time.Microsecond
	// jitter is the greatest part of the interval by which a round is shorter at
	// random.
	jitter = 0.05
	// ahead is the part of it, one in so many, by which a probe may start before
	// it is due where another one is, up to atOnce together: with few of them, to
	// wake up for each costs more than the checks. With jitter it is a tenth.
	ahead, atOnce = 20, 16
)

// Run runs the probes until ctx is done, and returns nil once all its goroutines
// have ended, but for those of checkers that do not return within a second: they
// are logged and left. Results of probes that ctx interrupted count for nothing. A
// Monitor runs once: a second call returns an error.
func (m *Monitor) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.started {
		m.mu.Unlock()
		return errors.New("healthcheck: the monitor has been run already")
	}
	m.started = true
	now := time.Now()
	m.stats.lastTick = now
	for _, p := range m.probes {
		m.enqueue(p, now, len(m.probes))
	}
	m.mu.Unlock()

	var delivering sync.WaitGroup
	delivering.Go(func() { m.deliver(ctx) })
	m.schedule(ctx)
	m.join()
	delivering.Wait()
	return nil
}

// schedule starts what is due until ctx is done.
func (m *Monitor) schedule(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-timer.C:
		}
		timer.Reset(m.tick(ctx, time.Now()))
	}
}

// tick visits every probe that is due and returns how long to wait for the next.
func (m *Monitor) tick(ctx context.Context, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.lastTick = now
	for n := 0; len(m.queue) > 0; n++ {
		p := m.queue[0]
		horizon := now.Add(slack)
		if n > 0 && n < atOnce && !p.busy && !p.waiting {
			horizon = now.Add(max(slack, p.interval/ahead))
		}
		if !p.due.Before(horizon) {
			return min(maxIdle, p.due.Sub(now))
		}
		if p.removed {
			// Its run was told to stop a while ago.
			m.unqueue(p)
			m.giveUp(ctx, p, now)
			continue
		}
		// Every visit moves due to the horizon or later.
		m.visit(ctx, p, now)
		heap.Fix(&m.queue, 0)
	}
	return maxIdle
}

// visit does what the due time of p asks for and sets the next one.
func (m *Monitor) visit(ctx context.Context, p *probe, now time.Time) {
	late := now.Sub(p.due)
	switch {
	case p.busy && now.Add(slack).Before(p.begun.Add(p.Timeout+overrun)):
		// Timeout and interval are about equal. finish brings this forward.
		p.late = true
		p.due = p.begun.Add(p.Timeout + overrun)
	case p.busy:
		// The checker broke its contract. It must not hide a dead server.
		if !p.overran {
			m.giveUp(ctx, p, now)
		}
		m.record(p, Result{Latency: now.Sub(p.begun)}, errOverrun, now)
		p.due = m.next(p, now)
	case p.waiting, late > p.interval:
		// A missed start is not made up for: after a stall of the host all of
		// them would come at once. The next slot is an interval away at most.
		m.stats.skipped++
		p.due = m.next(p, now)
	default:
		p.scheduled = p.due
		if err := m.stats.overdue.bars(p); err != nil {
			m.record(p, Result{}, err, now)
			p.due = m.next(p, now)
			return
		}
		p.due = m.next(p, now)
		m.start(ctx, p)
	}
}

// enqueue puts p into the schedule for the first time, as one of n. The caller
// holds mu.
//
// The first run comes within a short time that grows with n; the second at the
// probe's own phase, which a hash of the key spreads evenly over the interval.
func (m *Monitor) enqueue(p *probe, now time.Time, n int) {
	phase := float64(maphash.String(m.seed, p.key)>>11) / (1 << 53)
	p.interval = p.wanted()
	window := min(p.interval, time.Duration(n)*startGap)
	p.due = now.Add(time.Duration(phase * float64(window)))
	p.firstStep = time.Duration(phase * float64(p.interval-window))
	heap.Push(&m.queue, p)
}

// next returns the start that follows p.due.
func (m *Monitor) next(p *probe, now time.Time) time.Time {
	p.interval = p.wanted()
	step := m.shorten(p.interval, jitter)
	if p.first {
		p.first = false
		step = p.firstStep
	}
	return slotAfter(p.due, step, p.interval, now)
}

// wanted returns the interval that the state of p asks for.
func (p *probe) wanted() time.Duration {
	switch s := &p.status; {
	case p.Advisory:
	case s.turning():
		if p.Fast > 0 {
			return p.Fast
		}
	case s.State == Down && p.Timing.Down > 0:
		return p.Timing.Down
	}
	return p.Interval
}

// shorten takes up to a part of d off at random.
func (m *Monitor) shorten(d time.Duration, part float64) time.Duration {
	return d - time.Duration(part*m.random()*float64(d))
}

// pace moves the next start of p, whose run has ended, where that run was late or
// its result asks for another interval.
func (m *Monitor) pace(p *probe, now time.Time) {
	before, wanted := p.interval, p.wanted()
	var due time.Time
	switch {
	case wanted < before:
		due = p.scheduled.Add(m.shorten(wanted, jitter))
		if due.After(p.due) {
			due = p.due
		}
	case wanted > before:
		// Many probes may have changed their state together. They must not stay
		// together, so they go on at random between the old rhythm and the new.
		due = p.scheduled.Add(before + m.shorten(wanted-before, 1))
	case p.late:
		due = now
	default:
		return
	}
	// It may have begun ahead of what was scheduled, and the next start comes an
	// interval later at most.
	if last := p.begun.Add(wanted); due.After(last) {
		due = last
	}
	if due.Before(now) {
		due = now
	}
	p.interval, p.due = wanted, due
	heap.Fix(&m.queue, p.index)
	signal(m.wake)
}

// slotAfter returns due+step, or the first whole interval after it that a tick
// at now leaves for later, but never more than an interval from now.
func slotAfter(due time.Time, step, interval time.Duration, now time.Time) time.Time {
	next, horizon := due.Add(step), now.Add(slack)
	if next.Before(horizon) {
		next = next.Add((horizon.Sub(next)/interval + 1) * interval)
	}
	if last := now.Add(interval); next.After(last) {
		return last
	}
	return next
}

// queue is a heap of probes by due time.
type queue []*probe

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	p := x.(*probe)
	p.index = len(*q)
	*q = append(*q, p)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	p.index = -1
	return p
}
