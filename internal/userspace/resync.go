package userspace

import (
	"context"
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/userspace/flowtable"
)

const (
	// settleTicks is the time in which the first packet of a flow gets through the
	// host and its flow into conntrack, far above what it takes: 3 s.
	settleTicks = 3 * ticksASecond
	// ticksASecond is how finely the age of flows is known.
	ticksASecond = 10

	// Dumps come often while they are cheap, and take one processor 0.3 % of the
	// time at most.
	minResync   = 2 * time.Second
	maxResync   = time.Minute
	resyncShare = 300
	// freeFlows are flows that may pile up in the table without a dump, beyond as many
	// as the last one left.
	freeFlows = 1 << 16

	// urgentShare is the same for those that follow lost events: 10 %.
	urgentShare = 10
)

// resync makes the table of flows what conntrack says: it takes in flows whose
// begin was not seen, and lets go of those whose end was not, and of those that
// never got into conntrack. Verdicts and events go on meanwhile.
//
// What the dump says of a flow may be older than an event of it that was handled
// meanwhile: flows with events are left to these. A flow that was made while the
// dump ran, or a moment before, may be missing in it for good reasons, and stays.
func (e *Engine) resync(ctx context.Context) error {
	e.mu.Lock()
	e.generation++
	generation, start := e.generation, e.tick
	e.resyncing = true
	e.overtaken = make(map[entryName]bool)
	closedErrors := e.beginDump()
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.resyncing, e.overtaken = false, nil
		e.resyncAbove = 2*e.flows.Len() + freeFlows
		e.mu.Unlock()
	}()
	var c census
	err := e.dump(ctx, func(ev *conntrack.Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		s := e.serverOf(ev)
		if s == nil {
			if e.marks.id(ev.Mark) != 0 {
				c.strangers++
			}
			return
		}
		c.note(ev)
		if name := e.entry(ev.ID, &ev.Orig); !e.overtaken[name] && !e.overtaken[name.any()] {
			e.seen(ev, s, true)
		}
	})
	if err == nil {
		err = e.dumpRouted(ctx, &c)
	}
	if err != nil {
		return err // entries may be missing in what came
	}
	for part := range flowtable.Shards {
		e.mu.Lock()
		e.sweep(part, generation, start)
		e.mu.Unlock()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endDump(closedErrors)
	e.synced, e.everSynced, e.census = start, true, c
	return nil
}

// entryName names an entry of conntrack, which may be one of several that a
// tuple had: its id and half a hash of its tuple. Conntrack's id alone is a hash
// of 32 bits. With 50,000 events during a dump of 100,000 flows, one of the flows
// has the id of another with an event; it would be left out, swept, and counted
// as a new connection by the next dump.
type entryName uint64

func (e *Engine) entry(id uint32, t *flow.Tuple) entryName {
	return entryName(id)<<32 | entryName(uint32(e.flows.Hash(t)))
}

// any names all entries that the tuple had: where it is used again, no event tells
// which was the last.
func (n entryName) any() entryName { return n & (1<<32 - 1) }

// dump reads all flows that are ours. Each was translated, which the kernel
// sorts by, but for those whose real server has the address that their packets
// have anyway.
func (e *Engine) dump(ctx context.Context, handle func(*conntrack.Event)) error {
	const translated = conntrack.StatusDstNAT
	if err := e.table.Dump(ctx, conntrack.Filter{Status: translated, StatusMask: translated}, handle); err != nil {
		return err
	}
	for _, mark := range e.untranslated() {
		f := conntrack.Filter{Mark: mark, MarkMask: e.marks.mask, StatusMask: translated}
		if err := e.table.Dump(ctx, f, handle); err != nil {
			return err
		}
	}
	return nil
}

// untranslated returns the marks of real servers that the address of their
// service may lead to as it is.
func (e *Engine) untranslated() (marks []uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.model.servers {
		if s == nil || routed(&s.Destination) {
			continue
		}
		if k := s.service.ServiceKey; k.FWMark == 0 && k.Address.Addr() == s.Address.Addr() &&
			(k.Address.Port() == 0 || s.Address.Port() == 0 || k.Address.Port() == s.Address.Port()) {
			marks = append(marks, e.marks.of(s.id))
		}
	}
	return marks
}

// sweep releases the flows of one part that a dump should have had and had not.
func (e *Engine) sweep(part int, generation uint8, start uint32) {
	e.flows.Sweep(part, func(f *flowtable.Flow) bool {
		// Ticks wrap around; a flow may be younger than the dump.
		if age := int32(start - f.Born); f.Generation == generation || age <= settleTicks {
			return false
		}
		e.uncount(f, e.missing(f))
		return true
	})
}
