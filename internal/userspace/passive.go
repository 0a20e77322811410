package userspace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/lbd-project/lbd/internal/userspace/flowtable"
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
	// last is what was counted when it was last told, by mark.
	last map[uint32]counts
}

// Kinds that the rules' counters of passive have not: what came back of services
// that may have UDP, and segments that were decided on twice.
const (
	answeredUDP = ruleset.UnreachableUDP + 1 + iota
	repeated
)

// counts are one real server's, by ruleset.Handshake.
type counts [repeated + 1]uint64

// repeatTicks is the time, in ticks, in which a first segment waits for its verdict
// and cannot have been sent again by an honest client.
const repeatTicks = 3

// repeats says whether a segment begins a connection again that a moment ago had
// one. Where both wait for their verdicts, connection tracking drops the later one
// behind the rules that count, so that nobody will answer it.
func (e *Engine) repeats(old *flowtable.Flow, protocol uint8) bool {
	return protocol == uint8(ipvs.TCP) && e.tick-old.Born <= repeatTicks
}

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
	e.beginHandshakes(func(k ipvs.ServiceKey) bool { return next[k] && !before[k] })
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

// beginHandshakes lets real servers of services begin: what was before does not
// count, also of dead ones, which may come back. Elements of the rules begin with
// the services.
func (e *Engine) beginHandshakes(services func(ipvs.ServiceKey) bool) {
	p := &e.passive
	p.mu.Lock()
	defer p.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readTraffic()
	if p.last == nil {
		p.last = make(map[uint32]counts)
	}
	for _, s := range e.model.servers {
		if s != nil && services(s.service.ServiceKey) {
			p.last[e.marks.of(s.id)] = counts{answeredUDP: s.back.packets, repeated: s.repeated}
		}
	}
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
	e.addHandshakes(now)
	for mark, c := range now {
		more := c.since(p.last[mark])
		if s := e.model.server(e.marks.id(mark)); s != nil && !s.dead && more != (counts{}) {
			h := Handshakes{
				DestinationKey: s.key(),
				Tried:          more[ruleset.Tried], Answered: more[ruleset.Answered],
				Reset: more[ruleset.Reset], Unreachable: more[ruleset.Unreachable], Withdrawn: more[ruleset.Withdrawn] + more[repeated],
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

// addHandshakes adds what the rules' counters of passive have not. mu is held.
func (e *Engine) addHandshakes(now map[uint32]counts) {
	read := false
	for mark, c := range now {
		s := e.model.server(e.marks.id(mark))
		if s == nil {
			continue
		}
		c[repeated] = s.repeated
		if s.service.FWMark != 0 || s.service.Protocol == ipvs.UDP {
			if !read {
				e.readTraffic()
				read = true
			}
			c[answeredUDP] = s.back.packets
		}
		now[mark] = c
	}
}

// since returns how much more that is. Where one of the rules' counters of passive
// says less than before all of them began again; so may others do.
func (c counts) since(before counts) counts {
	for i := range answeredUDP {
		if c[i] < before[i] {
			clear(before[:answeredUDP])
			break
		}
	}
	for i := range c {
		if c[i] >= before[i] {
			c[i] -= before[i]
		}
	}
	return c
}
