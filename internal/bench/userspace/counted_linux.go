package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// drainInterval is how often the counted limit reads its events, as lbd does.
const drainInterval = 5 * time.Millisecond

// startCounted starts the limit of whoever counts connections by conntrack: the
// rules of the limit, with an event for the first FIN or RST of a connection and
// one for the end of its entry, and this process to read them. What lbd takes
// beyond it is the price of the decision, the rest that of knowing the counts.
func (t *trial) startCounted(ctx context.Context, _ netnstest.TB) (*running, error) {
	events, err := conntrack.OpenEvents(conntrack.EventConfig{
		NetNS: t.rig.Balancer.FD(), Groups: conntrack.Updates | conntrack.Destroys,
	})
	if err != nil {
		return nil, err
	}
	if err := t.nft(ctx, countedRules()); err != nil {
		return nil, errors.Join(err, events.Close())
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var drained int
	var drainErr error
	wg.Go(func() {
		tick := time.NewTicker(drainInterval)
		defer tick.Stop()
		for last := false; drainErr == nil && !last; {
			select {
			case <-tick.C:
			case <-stop:
				last = true
			}
			var n int
			n, drainErr = events.Drain(func(*conntrack.Event) {})
			drained += n
		}
	})
	return &running{log: silent, stop: func() error {
		close(stop)
		wg.Wait()
		if drained == 0 && drainErr == nil {
			drainErr = errors.New("no connection made an event")
		}
		return errors.Join(drainErr, events.Close(), t.nft(ctx, "delete table ip "+limitTable))
	}}, nil
}
