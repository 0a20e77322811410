package userspace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
)

// passive is which services count how connections begin, and what has been told of
// it. Decisions know nothing of it.
type passive struct {
	// services belongs to the write lock.
	services map[ipvs.ServiceKey]bool
	// mu guards what follows. It is taken before the engine's.
	mu sync.Mutex
	// last is what the rules' counters said last, by mark.
	last map[uint32]counts
}

// counts are one real server's, by ruleset.Handshake.
type counts [ruleset.UnreachableUDP + 1]uint64

// Handshakes are how connections to a real server began. A TCP connection is tried
// once, and has one outcome at most. Of UDP a flow is tried once, and each ICMP error
// is one of UnreachableUDP.
type Handshakes struct {
	ipvs.DestinationKey
	Tried, Answered, Reset, Unreachable uint64
	TriedUDP, UnreachableUDP            uint64
}

// WatchHandshakes makes the services of these keys those whose Handshakes are
// counted, also such as are added later.
func (e *Engine) WatchHandshakes(ctx context.Context, services []ipvs.ServiceKey) error {
	if err := e.lockWrites(ctx); err != nil {
		return &ipvs.Error{Op: "watch handshakes", Err: err}
	}
	defer e.unlockWrites()
	next := make(map[ipvs.ServiceKey]bool, len(services))
	for _, k := range services {
		next[canonicalKey(k)] = true
	}
	before := e.passive.services
	if maps.Equal(before, next) {
		return nil
	}
	e.passive.services = next
	differs := func(k ipvs.ServiceKey) bool { return before[k] != next[k] }
	if !slices.ContainsFunc(slices.Collect(maps.Keys(e.model.services)), differs) {
		return nil
	}
	if err := e.program(ctx, e.current()); err != nil {
		e.stale = true
		return &ipvs.Error{Op: "watch handshakes", Err: err}
	}
	return nil
}

// Handshakes returns how connections began since the last call, for each real
// server of a service that is watched and has some.
func (e *Engine) Handshakes() ([]Handshakes, error) {
	p := &e.passive
	p.mu.Lock()
	defer p.mu.Unlock()
	now := make(map[uint32]counts)
	err := e.rules.Handshakes(func(mark uint32, kind ruleset.Handshake, n uint64) {
		c := now[mark]
		c[kind] = max(c[kind], n) // one may come twice
		now[mark] = c
	})
	if err != nil {
		return nil, fmt.Errorf("read handshakes: %w", err)
	}
	var list []Handshakes
	e.mu.Lock()
	defer e.mu.Unlock()
	for mark, c := range now {
		more := c.since(p.last[mark])
		if s := e.model.server(e.marks.id(mark)); s != nil && !s.dead && more != (counts{}) {
			list = append(list, Handshakes{
				DestinationKey: s.key(),
				Tried:          more[ruleset.Tried], Answered: more[ruleset.Answered],
				Reset: more[ruleset.Reset], Unreachable: more[ruleset.Unreachable],
				TriedUDP: more[ruleset.TriedUDP], UnreachableUDP: more[ruleset.UnreachableUDP],
			})
		}
	}
	// A mark may be left out of one reading, and counts on all the same.
	for mark, c := range p.last {
		if _, ok := now[mark]; !ok && e.model.server(e.marks.id(mark)) != nil {
			now[mark] = c
		}
	}
	p.last = now
	slices.SortFunc(list, func(a, b Handshakes) int {
		return cmp.Or(a.Service.Compare(b.Service), a.Address.Compare(b.Address))
	})
	return list, nil
}

// since returns how much more that is. A counter that says less than before began
// again.
func (c counts) since(before counts) counts {
	for i := range c {
		if c[i] < before[i] {
			return c
		}
	}
	for i := range c {
		c[i] -= before[i]
	}
	return c
}
