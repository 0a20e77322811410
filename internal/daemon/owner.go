package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/daemon/notify"
	"github.com/lbd-project/lbd/internal/reconcile"
	"github.com/lbd-project/lbd/internal/retry"
	"github.com/lbd-project/lbd/ipvs"
)

// The delay before a failed pass is tried again: it doubles from retryMin to
// retryMax, less up to a quarter at random.
const (
	retryMin = 250 * time.Millisecond
	retryMax = 30 * time.Second
)

// lookAfter is the time after which the table is read where something was written
// that went by what it was believed to hold.
const lookAfter = 5 * time.Second

// maxRest bounds the rest after a pass that followed a transition. It is as long as
// the pass was, so that many transitions make one. As long as passes take no longer
// than that, a storm of them takes half of a processor at most.
const maxRest = 100 * time.Millisecond

// maxIdle is the longest time that the owner waits: its heartbeat shows that it
// is alive.
const maxIdle = time.Second

// loaded is a configuration with where it came from. It is immutable.
type loaded struct {
	*config.Config
	file   string
	sha256 string
	at     time.Time
}

// owner holds the desired state. Everything in it that is not safe for
// concurrent use belongs to the goroutine of run; others send it requests, wake
// it up, or read the view.
type owner struct {
	log    *slog.Logger
	engine Engine
	// clearEngine removes what is left of the engine without services; it may be
	// nil.
	clearEngine func(context.Context) error
	// repairs counts the engine's own repairs, repaired is what has been reported;
	// repairs may be nil.
	repairs  func() uint64
	repaired uint64
	host     Host
	// paths are the ways of checks through services; nil for none.
	paths    Paths
	store    Store
	monitor  *healthcheck.Monitor
	mirror   *mirror
	notifier *notifier
	events   *eventRing
	// told are the hooks that are told of events.
	told *notify.Set
	// observer sees how connections begin; nil where the engine does not.
	observer *observer

	// requests run on the owner's goroutine.
	requests chan func(context.Context)
	// dirty asks for a pass, counted says that the mirror has new counts. Both
	// hold one token, so that many reasons make one pass.
	dirty, counted chan struct{}
	// tried is closed after the first pass, synced after the first success.
	tried, synced chan struct{}

	view atomic.Pointer[view]
	// beat is when the owner last made progress, by the monotonic clock; nil
	// before the first time.
	beat atomic.Pointer[time.Time]

	loaded *loaded
	// keys are the keys of the probes of loaded, subjects the names of what they look
	// at: texts that are long to make.
	keys, subjects map[*healthcheck.Probe]string

	mem        *ledger
	saved      *ledger // what the store holds
	reconciler *reconcile.Reconciler
	fleet      *fleet.Fleet
	// admin is what operators said of real servers.
	admin     *overrides
	since     map[ipvs.DestinationKey]since
	announced map[ipvs.DestinationKey]announcement
	// weightNews limits what is told of weights alone.
	weightNews map[ipvs.DestinationKey]weightNews
	// warned is what was told of warnings of checks.
	warned map[ipvs.DestinationKey]warned
	// released is when services stopped to be lbd's, until statistics are newer.
	released map[ipvs.ServiceKey]time.Time
	// usable says which services the log last said to have a real server that
	// takes connections.
	usable map[ipvs.ServiceKey]bool
	// alerts are those of decisions that nobody has been told of, commands what
	// the last decision has to tell by hooks.
	alerts    []fleet.Alert
	commands  []quorumHook
	hooks     *quorumHooks
	sync      syncState
	reloadErr string
	// adopted says that the table has been searched for servers that left the
	// configuration while lbd was not running.
	adopted bool
	// drained is when the table acknowledged the weight 0 of a draining server.
	drained map[ipvs.DestinationKey]time.Time
	// failures counts passes that failed in a row, unsaved the vain attempts to
	// write down what operators said.
	failures, unsaved int
	// next is when the next pass is due, look when it has to read the table.
	next, look time.Time
}

// run owns the desired state until ctx is done.
func (o *owner) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var rested time.Time
	dirty := o.dirty
	for {
		select {
		case <-ctx.Done():
			return nil
		case do := <-o.requests:
			do(ctx)
		case <-dirty:
			begun := time.Now()
			o.react(ctx)
			ended := time.Now()
			rested = ended.Add(min(ended.Sub(begun), maxRest))
		case <-o.counted:
			if o.noteRepairs(time.Now()) {
				o.publish()
			}
			if o.finishDrains(time.Now()) {
				o.react(ctx)
			}
		case <-timer.C:
		}
		now := time.Now()
		if !now.Before(o.next) {
			o.react(ctx)
			now = time.Now()
		}
		o.beat.Store(&now)
		wait := min(maxIdle, o.next.Sub(now))
		if dirty = o.dirty; now.Before(rested) {
			dirty, wait = nil, min(wait, rested.Sub(now))
		}
		timer.Reset(wait)
	}
}

// do runs f on the owner's goroutine and waits for it. When ctx ends first, f
// may still run later. It returns errStopped once the owner has stopped.
func (o *owner) do(ctx context.Context, stopped <-chan struct{}, f func(context.Context)) error {
	done := make(chan struct{})
	request := func(ctx context.Context) {
		defer close(done)
		f(ctx)
	}
	select {
	case o.requests <- request:
	case <-ctx.Done():
		return ctx.Err()
	case <-stopped:
		return errStopped
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-stopped:
		return errStopped
	}
}

var errStopped = fmt.Errorf("%w: lbd is stopping", api.ErrUnavailable)

// schedule sets the time of the next pass.
func (o *owner) schedule(report reconcile.Report, err error) {
	now := time.Now()
	switch {
	case err != nil:
		o.failures++
		o.look = now.Add(retryDelay(o.failures, rand.Float64()))
	case report.Rounds > 0:
		o.failures = 0
		o.look = now.Add(o.loaded.ReconcileInterval)
	case len(report.Changes) > 0:
		o.look = earlier(o.look, now.Add(lookAfter))
	}
	o.next = o.look
	if o.unsaved > 0 {
		o.next = earlier(o.next, now.Add(retryDelay(o.unsaved, rand.Float64())))
	}
	if o.fleet == nil || o.fleet.Next.IsZero() {
		return
	}
	// A weight may be on its way, in services that no error is about, too. After an
	// error its time may be over because nothing was decided.
	if next := o.fleet.Next; next.Before(o.next) && (err == nil || next.After(now)) {
		o.next = next
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// retryDelay returns the delay after a number of failures in a row, at least 1;
// random is in [0, 1).
func retryDelay(failures int, random float64) time.Duration {
	return retry.Delay(failures, retryMin, retryMax, random)
}
