package userspace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

const (
	// careInterval is how often the engine looks after what nobody waits for.
	careInterval = time.Second
	// estimateEvery is how many of these make the estimator's two seconds.
	estimateEvery = 2
	// changePause is how long others' changes of rules are not looked at after one
	// was, so that who makes many costs little.
	changePause = 100 * time.Millisecond
)

// Run answers packets and counts flows until ctx is done, or until the kernel
// has no queue for the engine any more, which it returns. New connections are
// balanced by the rules alone before Run and after it.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(e.queues))
	var wg sync.WaitGroup
	for i, q := range e.queues {
		wg.Go(func() {
			r := &reader{engine: e}
			tick := e.tickQuiet
			if i == 0 {
				tick = e.tickEvents
			}
			if errs[i] = q.Run(ctx, r, tick); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Go(func() { e.resyncs(ctx) })
	changed := make(chan struct{})
	wg.Go(func() { e.awaitChanges(ctx, changed) })
	wg.Go(func() { e.care(ctx, changed) })
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("userspace engine: %w", err)
	}
	return nil
}

// tickEvents is called every few milliseconds on the thread of the first queue. It
// returns whether it ought to be, also where no packets come: while there are
// events, and while requests are timed by them.
func (e *Engine) tickEvents() (busy bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advance()
	before := e.heard
	e.drain()
	if e.closedDue && e.now-e.closedAt >= idleRead {
		e.readClosed()
	}
	e.expireQuiet()
	if e.flows.Len() > e.resyncAbove {
		e.resyncAbove = math.MaxInt // until it has been
		e.resyncNow()
	}
	return e.heard != before || e.model.signals
}

// tickQuiet is tickEvents for the other queues.
func (e *Engine) tickQuiet() (busy bool) {
	e.tickTime()
	return false
}

func (e *Engine) tickTime() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advance()
}

// advance notes the time, and whether the next decision ought to read the rules'
// counters: any queue may have it. mu is held.
func (e *Engine) advance() {
	e.setTime()
	e.closedDue = e.now >= e.closedNext
}

// resyncs compares the flows with conntrack, at once where events were lost.
func (e *Engine) resyncs(ctx context.Context) {
	timer := time.NewTimer(minResync)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-e.urgent:
		}
		start := time.Now()
		err := e.resync(ctx)
		if err != nil && ctx.Err() == nil {
			e.log.Debug("compare flows with conntrack", "err", err)
		}
		took := time.Since(start)
		// Where events keep getting lost there is a pause all the same.
		select {
		case <-ctx.Done():
			return
		case <-time.After(urgentShare * took):
		}
		timer.Reset(min(max(minResync, resyncShare*took), maxResync))
	}
}

// care does what has time: estimates, templates, marks, the state of the rules.
// As soon as others change rules it looks whether these are its own: without
// them the connections that there are end with their next packet, and a host that
// has the services' addresses refuses new ones. Scripts that load a host's
// firewall begin with "flush ruleset".
func (e *Engine) care(ctx context.Context, changed <-chan struct{}) {
	e.lookNow(ctx) // what is lost from here on is news
	ticker := time.NewTicker(careInterval)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-changed:
			e.maintainNow(ctx)
			n--
			continue
		}
		e.tickTime()
		e.expireTemplates()
		e.forgetAborted()
		if n%estimateEvery == 0 {
			e.estimate()
		}
		if n%watchEvery == 0 {
			e.lookNow(ctx)
		}
		e.maintainNow(ctx)
	}
}

// awaitChanges passes on that others have changed rules.
func (e *Engine) awaitChanges(ctx context.Context, changed chan<- struct{}) {
	for {
		if err := e.rules.Wait(ctx); err != nil {
			if ctx.Err() == nil {
				e.log.Warn("changes of the rules of the userspace engine are repaired with a delay", "err", err)
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case changed <- struct{}{}:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(changePause):
		}
	}
}

func (e *Engine) maintainNow(ctx context.Context) {
	if err := e.maintain(ctx); err != nil && ctx.Err() == nil {
		e.log.Warn("look after the rules of the userspace engine", "err", err)
	}
}

func (e *Engine) lookNow(ctx context.Context) {
	if err := e.look(ctx); err != nil && ctx.Err() == nil {
		e.log.Debug("look at queues and conntrack", "err", err)
	}
}

// estimate updates the rates.
func (e *Engine) estimate() {
	e.each(e.readTraffic, func(svc *service) {
		svc.traffic.estimate()
		for _, s := range svc.servers {
			s.traffic.estimate()
		}
	})
}

// Repairs returns how often somebody else had changed the rules, so that they
// were written again.
func (e *Engine) Repairs() uint64 { return e.repairs.Load() }

// maintain repairs the rules where somebody changed them or a change failed,
// follows whether others listen to events, and tidies up.
func (e *Engine) maintain(ctx context.Context) error {
	if err := e.lockWrites(ctx); err != nil {
		return err
	}
	defer e.unlockWrites()
	intact, err := e.rules.Intact(ctx)
	if err != nil {
		return err
	}
	if !intact || e.stale || e.allEvents != e.others.Load() {
		if !intact {
			e.log.Warn("somebody changed the rules of the userspace engine: they are written again")
			e.repairs.Add(1)
		}
		if err := e.program(ctx, e.current()); err != nil {
			return err
		}
	} else if e.unkept != nil {
		e.keep(e.current())
	}
	e.tidy(ctx)
	return e.retire(ctx)
}
