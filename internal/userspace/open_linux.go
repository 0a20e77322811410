package userspace

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/nfqueue"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
)

// Open makes an engine from what the store has of the last one: the rules are
// made to match it, and counts and templates are rebuilt from the kernel before
// Open returns. Connections of the last one go on meanwhile. Call Run soon: from
// then on packets of new connections are answered.
//
// The error matches nfqueue.ErrInUse where another program has a queue's number,
// ErrRunning where another engine has other numbers, and ruleset.ErrUnsupported
// where the kernel lacks something.
func Open(ctx context.Context, o Options) (*Engine, error) {
	var seed [32]byte
	if _, err := crand.Read(seed[:]); err != nil {
		return nil, err
	}
	if o.NetNS <= 0 {
		o.NetNS = -1
	}
	e, err := newEngine(o, rand.NewChaCha8(seed))
	if err == nil {
		err = e.open(ctx)
	}
	if err != nil {
		if e != nil {
			err = errors.Join(err, e.Close())
		}
		return nil, fmt.Errorf("open userspace engine: %w", err)
	}
	return e, nil
}

func (e *Engine) open(ctx context.Context) error {
	e.kernelQueues = func() ([]nfqueue.KernelQueue, error) { return nfqueue.Kernel(e.opt.NetNS) }
	// First of all: whoever holds a queue may be another engine, whose rules would
	// be replaced below.
	if err := e.queuesFree(); err != nil {
		return err
	}
	if err := e.lockRules(); err != nil {
		return err
	}
	if err := e.remember(); err != nil {
		return err
	}
	r, err := ruleset.Open(ctx, ruleset.Options{
		NetNS: e.opt.NetNS, Name: e.opt.RulesName, Mask: e.opt.MarkMask, StateMask: e.opt.StateMask,
		Queue: e.opt.QueueBase, Queues: uint16(e.opt.Queues), Fanout: e.opt.Queues > 1, FailOpen: e.opt.FailOpen, Logger: e.log,
	})
	if err != nil {
		return err
	}
	e.rules = r
	table, err := conntrack.OpenTable(e.opt.NetNS)
	if err != nil {
		return err
	}
	e.table = table
	e.listeners = func() (int, error) { return conntrack.Listeners(e.opt.NetNS) }
	if err := e.listen(); err != nil {
		return err
	}
	// Flows that begin or end from here on make events, which are looked at after
	// the dump.
	events, err := conntrack.OpenEvents(conntrack.EventConfig{
		NetNS: e.opt.NetNS, ReadBuffer: e.opt.eventBuffer, Groups: conntrack.News | conntrack.Updates | conntrack.Destroys,
	})
	if err != nil {
		return err
	}
	e.events = events
	if err := e.restore(ctx); err != nil {
		return err
	}
	for i := range e.opt.Queues {
		q, err := nfqueue.Open(nfqueue.Config{
			Number: e.opt.QueueBase + uint16(i), MaxLen: e.opt.QueueLength,
			Part: i, Parts: e.opt.Queues,
			FailOpen: e.opt.FailOpen, GSO: true, NetNS: e.opt.NetNS, Logger: e.log,
		})
		if err != nil {
			return err
		}
		e.queues = append(e.queues, q)
	}
	return nil
}

// queuesFree returns an error while another socket holds one of the queues.
func (e *Engine) queuesFree() error {
	held, err := e.kernelQueues()
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the module is not loaded yet
		return err
	}
	for _, q := range held {
		if n := int(q.Number) - int(e.opt.QueueBase); n >= 0 && n < e.opt.Queues {
			return fmt.Errorf("queue %d: %w by netlink port %d", q.Number, nfqueue.ErrInUse, q.PortID)
		}
	}
	return nil
}
