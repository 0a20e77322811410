package notify

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/command"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/retry"
)

const (
	// maxQueue is how many events wait for a hook.
	maxQueue = 4096
	// Grace is how long a hook may go on after the last event has come: when lbd
	// stops, and when a reload takes the hook away.
	Grace = 2 * time.Second
	// The pause between two attempts doubles from retryMin to retryMax, less up to
	// a quarter at random.
	retryMin = time.Second
	retryMax = time.Minute
	// sayEvery is how often the log has news of a hook that goes on failing.
	sayEvery = time.Minute
)

// sender tells events to one place.
type sender interface {
	// send tells events before ctx ends. After an error, again says whether the
	// same may be tried once more.
	send(ctx context.Context, n api.Notification) (again bool, err error)
}

// hook is one who is told. Its goroutine is run, which alone logs, and without mu; the
// other methods are safe for concurrent use and never wait.
type hook struct {
	spec   config.Hook
	log    *slog.Logger
	sender sender
	// most is how many events are told at once.
	most int
	// former, if not nil, has to end before this one begins.
	former *hook
	// wake holds a token when an event has come. finishing is closed when there
	// will be no more, ended when run has returned.
	wake             chan struct{}
	finishing, ended chan struct{}

	mu sync.Mutex
	// queue is what waits, the oldest first, without what is being told: busy is
	// how many that are, oldest when the first of them happened.
	queue  []api.Event
	busy   int
	oldest time.Time
	// heir, if not nil, takes over what is left.
	heir *hook
	// closed says that run has returned: nobody is told any more.
	closed bool
	// lost counts events since the last that were told, unsaid those that the log
	// does not know of.
	lost, unsaid uint64
	// warned is when the log last heard of a failure, saidLost of a loss.
	warned, saidLost time.Time
	state            api.Hook
}

func newHook(spec config.Hook, log *slog.Logger, reads *command.Reads) *hook {
	h := &hook{
		spec: spec, wake: make(chan struct{}, 1), finishing: make(chan struct{}), ended: make(chan struct{}),
		state: api.Hook{Name: spec.Name},
	}
	if spec.Exec != nil {
		h.state.Kind, h.sender, h.most = api.HookExec, &program{spec: spec.Exec, reads: reads}, 1
	} else {
		h.state.Kind, h.sender, h.most = api.HookWebhook, newWebhook(spec.Webhook), maxBatch
	}
	h.log = log.With("hook", spec.Name)
	return h
}

func (h *hook) wants(kind string) bool {
	return len(h.spec.Events) == 0 || slices.Contains(h.spec.Events, kind)
}

// add queues an event.
func (h *hook) add(e api.Event) {
	if !h.wants(e.Kind) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		h.lose(1)
		return
	}
	h.queue = append(h.queue, e)
	h.trim()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// trim drops the oldest events that there is no room for.
func (h *hook) trim() {
	if over := len(h.queue) - maxQueue; over > 0 {
		h.queue = h.queue[over:]
		h.lose(over)
	}
}

func (h *hook) lose(n int) {
	h.lost += uint64(n)
	h.unsaid += uint64(n)
	h.state.Lost += uint64(n)
}

// finish says that no more events come. heir, if not nil, takes over what has not
// been told.
func (h *hook) finish(heir *hook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heir = heir
	close(h.finishing)
}

func (h *hook) isFinishing() bool {
	select {
	case <-h.finishing:
		return true
	default:
		return false
	}
}

func (h *hook) replaced() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heir != nil
}

// run tells the events until ctx is done, or those that are left after finish for
// at most Grace.
func (h *hook) run(ctx context.Context) {
	if h.former != nil {
		<-h.former.ended
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-h.finishing:
		}
		pause(ctx, nil, Grace)
		cancel()
	})
	h.work(ctx)
	cancel()
	wg.Wait()
	h.end()
}

func (h *hook) work(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil && !h.replaced() {
		n, ok := h.take()
		if !ok {
			if h.isFinishing() {
				return
			}
			h.idle(ctx)
			continue
		}
		again, err := h.attempt(ctx, n)
		switch {
		case err == nil:
			failures = 0
			h.told(n)
		case again && (ctx.Err() != nil || h.replaced() || !h.isFinishing()):
			h.failed(err)
			h.putBack(n)
			failures++
			pause(ctx, h.finishing, retry.Delay(failures, retryMin, retryMax, rand.Float64()))
		default:
			failures = 0
			h.failed(err)
			h.drop(n)
		}
		if !h.isFinishing() {
			h.sayLost(false)
		}
	}
}

// take returns what is told next, and loses what is too old for that.
func (h *hook) take() (api.Notification, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := 0
	for old < len(h.queue) && time.Since(h.queue[old].Time) > h.spec.MaxAge {
		old++
	}
	h.queue = h.queue[old:]
	h.lose(old)
	h.busy = min(h.most, len(h.queue))
	if h.busy == 0 {
		h.queue = nil
		return api.Notification{}, false
	}
	n := api.Notification{Version: api.NotificationVersion, Host: hostName(), Lost: h.lost, Events: slices.Clone(h.queue[:h.busy])}
	h.oldest = n.Events[0].Time
	h.queue = h.queue[h.busy:]
	return n, true
}

func (h *hook) attempt(ctx context.Context, n api.Notification) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.spec.Timeout)
	defer cancel()
	return h.sender.send(ctx, n)
}

// told notes that a notification has arrived.
func (h *hook) told(n api.Notification) {
	h.mu.Lock()
	failures := h.state.Failures
	h.busy = 0
	h.lost -= n.Lost
	h.state.Told += uint64(len(n.Events))
	h.state.Failures, h.warned = 0, time.Time{}
	h.mu.Unlock()
	if failures > 0 {
		h.log.Info("notifications arrive again", "failures", failures)
	}
}

// failed notes an attempt that failed. Of those in a row the log has some.
func (h *hook) failed(err error) {
	now := time.Now()
	h.mu.Lock()
	h.state.Failures++
	failures := h.state.Failures
	h.state.LastError, h.state.LastErrorTime = err.Error(), now
	level := slog.LevelDebug
	if now.Sub(h.warned) >= sayEvery {
		level, h.warned = slog.LevelWarn, now
	}
	h.mu.Unlock()
	h.log.Log(context.Background(), level, "notification failed", "failures", failures, "err", err)
}

// putBack queues once more what was not told.
func (h *hook) putBack(n api.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy = 0
	h.queue = slices.Concat(n.Events, h.queue)
	h.trim()
}

// drop loses what cannot be told.
func (h *hook) drop(n api.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy = 0
	h.lose(len(n.Events))
}

// idle waits for an event, the end, or the time to tell the log of what was lost.
func (h *hook) idle(ctx context.Context) {
	h.mu.Lock()
	unsaid, due := h.unsaid > 0, time.Until(h.saidLost.Add(sayEvery))
	h.mu.Unlock()
	var say <-chan time.Time
	if unsaid {
		timer := time.NewTimer(due)
		defer timer.Stop()
		say = timer.C
	}
	select {
	case <-ctx.Done():
	case <-h.finishing:
	case <-h.wake:
	case <-say:
		h.sayLost(false)
	}
}

// sayLost tells the log of what was lost since the last time, now and then unless
// it is the last time.
func (h *hook) sayLost(last bool) {
	now := time.Now()
	h.mu.Lock()
	lost, all, waiting := h.unsaid, h.state.Lost, len(h.queue)
	say := lost > 0 && (last || now.Sub(h.saidLost) >= sayEvery)
	if say {
		h.unsaid, h.saidLost = 0, now
	}
	h.mu.Unlock()
	if say {
		h.log.Warn("notifications lost", "lost", lost, "lost_in_all", all, "waiting", waiting)
	}
}

// end loses what is left, or leaves it to the heir.
func (h *hook) end() {
	h.mu.Lock()
	h.closed = true
	if h.heir != nil {
		h.heir.inherit(h)
	} else {
		h.lose(len(h.queue))
	}
	h.queue = nil
	h.mu.Unlock()
	h.sayLost(true)
	close(h.ended)
}

// inherit takes over from former, whose lock is held.
func (h *hook) inherit(former *hook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(former.queue), func(e api.Event) bool { return !h.wants(e.Kind) })
	h.queue = append(left, h.queue...)
	h.lost += former.lost
	h.state.Told += former.state.Told
	h.state.Lost += former.state.Lost
	h.trim()
}

// status returns the state with what waits, by the clock.
func (h *hook) status(now time.Time) api.Hook {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.state
	s.Waiting = h.busy + len(h.queue)
	switch {
	case h.busy > 0:
		s.WaitingSeconds = now.Sub(h.oldest).Seconds()
	case len(h.queue) > 0:
		s.WaitingSeconds = now.Sub(h.queue[0].Time).Seconds()
	}
	return s
}

// pause waits for d, the end of ctx or stop, which may be nil.
func pause(ctx context.Context, stop <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stop:
	case <-ctx.Done():
	}
}
