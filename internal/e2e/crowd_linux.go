package e2e

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Crowd is a number of connections that are open at the same time, the oldest of
// which gives way to a new one at a steady rate. Those that somebody else ended
// are replaced at the same rate.
type Crowd struct {
	lab    *Lab
	url    string
	size   int
	cancel context.CancelFunc
	// loop replaces connections, waits see them end.
	loop, waits sync.WaitGroup

	mu sync.Mutex
	// held are the open ones, the oldest first.
	held    []*Held
	failed  int
	lastErr error
}

// StartCrowd opens size connections with requests that the servers do not end,
// and begins to replace them, one at each interval. Stop must be called.
func (l *Lab) StartCrowd(url string, size int, every time.Duration) (*Crowd, error) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Crowd{lab: l, url: url, size: size, cancel: cancel}
	for range size {
		if err := c.grow(); err != nil {
			c.Stop()
			return nil, err
		}
	}
	c.loop.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.grow() // what fails is counted
				c.shrink()
			case <-ctx.Done():
				return
			}
		}
	})
	return c, nil
}

// grow opens a connection.
func (c *Crowd) grow() error {
	h, err := c.lab.Hold(c.url)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failed++
		c.lastErr = err
		return err
	}
	c.held = append(c.held, h)
	c.waits.Go(func() {
		h.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if i := slices.Index(c.held, h); i >= 0 { // the server ended it
			c.held = slices.Delete(c.held, i, i+1)
			c.failed++
		}
	})
	return nil
}

// shrink ends the oldest connection if there are too many.
func (c *Crowd) shrink() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.held) > c.size {
		c.held[0].Close()
		c.held = slices.Delete(c.held, 0, 1)
	}
}

// Reset forgets the failures so far.
func (c *Crowd) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed, c.lastErr = 0, nil
}

// CrowdResult is what a Crowd is.
type CrowdResult struct {
	// Spread counts the open connections by server, Open all of them.
	Spread Spread
	Open   int
	// Failed counts those that could not be opened or that were ended by a server
	// since the last Reset; LastErr is the last error of one that was not opened.
	Failed  int
	LastErr error
}

// Result returns what the crowd is now.
func (c *Crowd) Result() CrowdResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := CrowdResult{Spread: make(Spread), Open: len(c.held), Failed: c.failed, LastErr: c.lastErr}
	for _, h := range c.held {
		r.Spread[h.Server]++
	}
	return r
}

// Stop ends all connections.
func (c *Crowd) Stop() {
	c.cancel()
	c.loop.Wait()
	c.mu.Lock()
	for _, h := range c.held {
		h.Close()
	}
	c.held = nil
	c.mu.Unlock()
	c.waits.Wait()
}
