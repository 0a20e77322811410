package userspace

import (
	"context"
	"fmt"
	"time"

	"github.com/lbd-project/lbd/internal/nfqueue"
)

const (
	// watchEvery is how many rounds of care lie between two looks at the host.
	watchEvery = 5
	// warnFor is how long a loss is worth a warning.
	warnFor = 10 * time.Minute
	// fullPercent is how full conntrack's table may be without a warning.
	fullPercent = 80
)

// loss is a counter of what ought not to happen.
type loss struct {
	text  string
	value uint64
	// last is when it grew, in the engine's time.
	last time.Duration
	grew bool
}

// watch is what the engine knows of its own troubles. It belongs to the
// goroutine that looks after things.
type watch struct{ losses []loss }

// grow takes in the value of a counter now. What was there at the first look is
// of others, or of before.
func (w *watch) grow(i int, text string, value uint64, now time.Duration) {
	for len(w.losses) <= i {
		w.losses = append(w.losses, loss{value: value})
	}
	l := &w.losses[i]
	l.text = text
	if value > l.value {
		l.last, l.grew = now, true
	}
	l.value = value
}

// recent returns the losses of late.
func (w *watch) recent(now time.Duration) []string {
	var list []string
	for _, l := range w.losses {
		if l.grew && now-l.last < warnFor {
			list = append(list, fmt.Sprintf("%s (%d, the last %v ago)", l.text, l.value, (now-l.last).Truncate(time.Second)))
		}
	}
	return list
}

// look brings Warnings up to date.
func (e *Engine) look(ctx context.Context) error {
	var list []string
	able := e.rules.Abilities()
	if able.Reject != nil {
		list = append(list, fmt.Sprintf("clients are not told when no real server is available, their packets are dropped: %v", able.Reject))
	}
	if err := e.listen(); err != nil {
		return err
	}
	if e.others.Load() {
		list = append(list, "another program listens to conntrack's events: the kernel makes them for all connections, which costs new connections time")
	}
	if err := e.lookHost(ctx); err != nil {
		return err
	}
	queues, err := e.kernelQueues()
	if err != nil {
		return err
	}
	var dropped uint64
	for _, q := range queues {
		if i := int(q.Number) - int(e.opt.QueueBase); i < 0 || i >= e.opt.Queues {
			continue
		}
		dropped += q.Dropped + q.UserDropped
		if limit := uint64(e.queueLength()); q.Waiting*2 > limit {
			list = append(list, fmt.Sprintf("queue %d: %d of %d packets wait for an answer", q.Number, q.Waiting, limit))
		}
	}
	stats, err := e.table.Stats(ctx)
	if err != nil {
		return err
	}
	if stats.Max > 0 && uint64(stats.Entries)*100 >= uint64(stats.Max)*fullPercent {
		list = append(list, fmt.Sprintf("conntrack has %d of %d connections: when it is full, new ones fail (net.netfilter.nf_conntrack_max)", stats.Entries, stats.Max))
	}
	var refused, panics uint64
	for _, q := range e.queues {
		s := q.Stats()
		refused += s.Refused
		panics += s.Panics
	}
	e.mu.Lock()
	e.drain() // of what the rules balanced before there was a queue, for example
	e.maxFlows = flowLimit(stats.Max)
	now := e.now
	for i, l := range []struct {
		text  string
		value uint64
	}{
		{"the queue was full, and packets of new connections were dropped", dropped},
		{"conntrack's events came too fast and some were lost, counts were read from its table", e.overruns},
		// Packets that clashed are counted as dropped too.
		{"conntrack's table was full, and new connections were dropped", stats.Drop - min(stats.Drop, stats.InsertFailed)},
		{"conntrack's table was full, and connections were given up early", stats.EarlyDrop},
		{"conntrack dropped packets whose connection clashed with another", stats.InsertFailed},
		{"new connections did not wait for the engine, as where the queue is full, and were balanced by weight alone", e.unasked},
		{"queued packets were of no form that is known, and were balanced by weight alone", e.unparsed.Load()},
		{"connection counts would have gone below 0, which is a fault of the engine", e.underflows},
		{"the kernel refused answers on packets", refused},
		{"there were too many connections to keep, as in a flood, and new ones were balanced by weight alone or dropped", e.unscheduled},
		{"there were too many clients to remember, as in a flood, and new ones of persistent services got no template", e.forgotten},
		{"answers on packets failed, which is a fault of the engine", panics},
		{"somebody changed net.netfilter settings that connections are counted with (nf_conntrack_events), and they were written again", e.hostChanges},
	} {
		e.watch.grow(i, l.text, l.value, now)
	}
	eventError, found := e.eventError, append(e.census.warnings(), e.counterWarnings()...)
	e.mu.Unlock()
	list = append(list, found...)
	if eventError != nil {
		list = append(list, fmt.Sprintf("conntrack's events cannot be read, connections are counted by its table alone: %v", eventError))
	}
	list = append(list, e.watch.recent(now)...)
	e.warnings.Store(&list)
	e.noteTimeWait()
	return nil
}

// listen notes whether somebody else listens to conntrack's events.
func (e *Engine) listen() error {
	n, err := e.listeners()
	if err == nil {
		e.others.Store(n > 0)
	}
	return err
}

func (e *Engine) queueLength() uint32 {
	if e.opt.QueueLength == 0 {
		return 8192 // nfqueue's own
	}
	return e.opt.QueueLength
}

// Warnings returns what a person should know of the engine now: packets that
// were lost, a table that is nearly full, what this host cannot do. It is some
// seconds old; nil if there is nothing.
func (e *Engine) Warnings() []string {
	if p := e.warnings.Load(); p != nil {
		return *p
	}
	return nil
}

// Describe returns in half a line how packets reach the engine.
func (e *Engine) Describe() string {
	how := "xtables' NFQUEUE"
	if e.rules.Abilities().NativeQueue {
		how = "nftables' queue"
	}
	first, last := int(e.opt.QueueBase), int(e.opt.QueueBase)+e.opt.Queues-1
	if first == last {
		return fmt.Sprintf("%s %d", how, first)
	}
	return fmt.Sprintf("%s %d to %d", how, first, last)
}

// queueLister lists the queues that the kernel has in a network namespace.
type queueLister func() ([]nfqueue.KernelQueue, error)
