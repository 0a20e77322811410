package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// errNoReturn is the result of a checker that ended its goroutine.
var errNoReturn = errors.New("the check ended its goroutine")

// start runs p, at once or when it is its turn. The caller holds mu.
func (m *Monitor) start(run context.Context, p *probe) {
	if m.opts.Parallel > 0 && m.stats.running >= m.opts.Parallel {
		p.waiting = true
		m.ready = append(m.ready, p)
		return
	}
	m.stats.running++
	m.begin(run, p, time.Now())
}

// begin runs p on a goroutine of its own, in a place that the caller has counted
// in stats.running. The context is that of Run. The caller holds mu.
func (m *Monitor) begin(run context.Context, p *probe, now time.Time) {
	p.waiting, p.busy, p.begun = false, true, now
	m.stats.start(now.Sub(p.scheduled), now)
	ctx, cancel := context.WithTimeout(run, p.Timeout)
	p.cancel = cancel
	down := p.status.State == Down
	m.workers.Go(func() {
		r, err := Result{}, errNoReturn
		// Deferred, so that not even runtime.Goexit in a checker keeps the
		// place. A panic has become an error in check.
		defer func() {
			end := ctx.Err()
			cancel()
			m.finish(run, p, r, err, end)
		}()
		r, err = m.check(ctx, p, down, now)
	})
}

// check runs the checker, which begins now, and returns its error as a Status keeps
// it. A panic in there is a failed probe: a bug that one answer triggers must not
// take down the balancer.
//
// What is down does not come up because others have changed the ways of packets.
// What is up stays so until the next check, and what is Pending, as everything is
// after a restart, is not asked of either: one flush would take out what was up.
func (m *Monitor) check(ctx context.Context, p *probe, down bool, now time.Time) (r Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			r, err = Result{}, fmt.Errorf("the check panicked: %v", v)
			m.log.Error("checker panicked", "check", p.key, "err", err, "stack", string(debug.Stack()))
		}
	}()
	r, err = p.checker.Check(ctx)
	if err == nil && down {
		err = m.opts.Env.kept(p.Through, now)
	}
	return r, keep(err)
}

// finish takes the result of a run and gives its place away. end
// says whether the run's context was over by then, and why.
func (m *Monitor) finish(run context.Context, p *probe, r Result, err, end error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	p.busy, p.cancel = false, nil
	if r.Latency == 0 {
		r.Latency = now.Sub(p.begun)
	}
	if err == nil && errors.Is(end, context.DeadlineExceeded) {
		err = fmt.Errorf("the check took longer than %v", p.Timeout)
	}
	switch {
	case p.removed || errors.Is(end, context.Canceled):
		// Set or the end of Run stopped it: that says nothing of the target.
	case p.overran:
		// Counted already, as what it was.
	default:
		m.record(p, r, err, now)
	}
	if p.removed {
		m.unqueue(p)
	} else {
		m.pace(p, now)
	}
	if p.overran {
		m.stats.overdue.add(p, -1)
	} else {
		m.release(run, now)
	}
	p.late, p.overran = false, false
}

// release gives the place of a run to the next in line. The caller holds mu.
func (m *Monitor) release(run context.Context, now time.Time) {
	for len(m.ready) > 0 && run.Err() == nil {
		next := m.ready[0]
		m.ready[0] = nil
		m.ready = m.ready[1:]
		err := m.stats.overdue.bars(next)
		if err == nil {
			m.begin(run, next, now)
			return
		}
		next.waiting = false
		m.record(next, Result{}, err, now)
	}
	m.stats.running--
}

// record takes a result into the state of p. The caller holds mu.
func (m *Monitor) record(p *probe, r Result, err error, now time.Time) {
	m.stats.checks++
	if err != nil {
		m.stats.failures++
	}
	p.status.add(&p.Probe, r, err, now)
	m.tell(p)
}
