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

// answeredUDP is one kind more: what came back of services that may have UDP.
const answeredUDP = ruleset.UnreachableUDP + 1

// counts are one real server's, by ruleset.Handshake.
type counts [answeredUDP + 1]uint64

// Handshakes are how connections to a real server began. A TCP connection is tried
// once, and has one outcome at most; one that is Withdrawn says nothing of the real
// server. Of UDP ICMP errors are counted, and the datagrams that came back.
type Handshakes struct {
	ipvs.DestinationKey
	Tried, Answered, Reset, Unreachable, Withdrawn uint64
	AnsweredUDP, UnreachableUDP                    uint64
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
	e.answeredUDP(now)
	for mark, c := range now {
		more := c.since(p.last[mark])
		if s := e.model.server(e.marks.id(mark)); s != nil && !s.dead && more != (counts{}) {
			h := Handshakes{
				DestinationKey: s.key(),
				Tried:          more[ruleset.Tried], Answered: more[ruleset.Answered],
				Reset: more[ruleset.Reset], Unreachable: more[ruleset.Unreachable], Withdrawn: more[ruleset.Withdrawn],
				UnreachableUDP: more[ruleset.UnreachableUDP],
			}
			// What came back has the ICMP errors in it.
			if back := more[answeredUDP]; back > h.UnreachableUDP {
				h.AnsweredUDP = back - h.UnreachableUDP
			}
			list = append(list, h)
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

// answeredUDP adds what came back, if anything has UDP. mu is held.
func (e *Engine) answeredUDP(now map[uint32]counts) {
	read := false
	for mark, c := range now {
		s := e.model.server(e.marks.id(mark))
		if s == nil || s.service.FWMark == 0 && s.service.Protocol != ipvs.UDP {
			continue
		}
		if !read {
			e.readTraffic()
			read = true
		}
		c[answeredUDP] = s.back.packets
		now[mark] = c
	}
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
