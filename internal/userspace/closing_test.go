package userspace

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
)

// TestClosingDecides lets the next decision know of connections that closed since
// the last tick, and the one after it only with the next tick.
func TestClosingDecides(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	first, second := tupleTo(web, "198.51.100.1:1000"), tupleTo(web, "198.51.100.1:1001")
	if got := g.connect(first, 1); got != two {
		t.Fatalf("first: want %s, got %s", two, got)
	}
	g.connect(second, 2)
	g.pass(5 * time.Millisecond)
	g.kernel.close(second)
	// Inactive connections weigh less, so the server of the second is the next.
	if got := g.connect(tupleTo(web, "198.51.100.1:1002"), 3); got != one {
		t.Errorf("after a close: want %s, got %s", one, got)
	}
	g.kernel.close(first)
	g.kernel.close(tupleTo(web, "198.51.100.1:1002"))
	g.connect(tupleTo(web, "198.51.100.1:1003"), 4)
	if n := g.engine.model.services[web.ServiceKey].index[netip.MustParseAddrPort(one)].sched.Active(); n != 1 {
		t.Errorf("the counters were read twice within a tick: %d active", n)
	}
	g.counts(web.ServiceKey, map[string]string{one: "0/2/0", two: "1/1/0"})
}

// TestClosingOtherQueue lets a decision know of closed connections where the first
// queue has nothing to do, and so ticks rarely.
func TestClosingOtherQueue(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	second := tupleTo(web, "198.51.100.1:1001")
	g.connect(tupleTo(web, "198.51.100.1:1000"), 1)
	g.connect(second, 2)
	g.kernel.close(second)
	g.clock += 5 * time.Millisecond
	if g.engine.tickQuiet() {
		t.Error("the second queue was busy")
	}
	if got := g.connect(tupleTo(web, "198.51.100.1:1002"), 3); got != one {
		t.Errorf("after a close: want %s, got %s", one, got)
	}
}

// TestClosingFallback reads the event of a connection that the rules balanced
// before the counter that it closed.
func TestClosingFallback(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	tu := tupleTo(web, "198.51.100.1:1000")
	g.kernel.begin(tu, g.engine.marks.of(1), true)
	g.kernel.close(tu)
	g.counts(web.ServiceKey, map[string]string{one: "0/1/0"})
}

// TestClosingAnew goes on where the counter of a real server began again.
func TestClosingAnew(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	tuples := []string{"198.51.100.1:1000", "198.51.100.1:1001", "198.51.100.1:1002", "198.51.100.1:1003"}
	for i, c := range tuples {
		g.connect(tupleTo(web, c), uint32(i))
	}
	g.kernel.close(tupleTo(web, tuples[0]))
	g.kernel.close(tupleTo(web, tuples[1]))
	g.pass(time.Second)
	clear(g.kernel.closedQuiet)
	g.kernel.close(tupleTo(web, tuples[2]))
	g.counts(web.ServiceKey, map[string]string{one: "1/3/0"})
	// Where as many closed unseen the next resync tells.
	clear(g.kernel.closedQuiet)
	g.kernel.close(tupleTo(web, tuples[3]))
	g.counts(web.ServiceKey, map[string]string{one: "1/3/0"})
	g.resync()
	g.counts(web.ServiceKey, map[string]string{one: "0/4/0"})
}

// TestClosingEarly ends connections whose counter was not read yet, or never is.
func TestClosingEarly(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	for i, c := range []string{"198.51.100.1:1000", "198.51.100.1:1001"} {
		g.connect(tupleTo(web, c), uint32(i))
	}
	g.kernel.close(tupleTo(web, "198.51.100.1:1000"))
	clear(g.kernel.closedQuiet)
	g.resync()
	g.counts(web.ServiceKey, map[string]string{one: "1/1/0"})
	// What was not counted then does not hide what is counted now.
	g.kernel.close(tupleTo(web, "198.51.100.1:1001"))
	g.counts(web.ServiceKey, map[string]string{one: "0/2/0"})
}

// TestClosingError keeps the counts where the counters cannot be read, and says
// so. Dumps still tell.
func TestClosingError(t *testing.T) {
	g := newRig(t)
	g.engine.kernelQueues = noQueues
	g.apply(addOp(web), add(web, one, 1))
	tu := tupleTo(web, "198.51.100.1:1000")
	g.connect(tu, 1)
	g.rules.closedError, g.rules.kernel = errTest, newKernel()
	g.kernel.close(tu)
	g.pass(time.Second)
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0"})
	g.resync()
	g.counts(web.ServiceKey, map[string]string{one: "0/1/0"})
	if err := g.engine.look(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(g.engine.Warnings(), "\n"); !strings.Contains(got, errTest.Error()) {
		t.Errorf("warnings: %s", got)
	}
	g.rules.closedError, g.rules.kernel = nil, g.kernel
	g.kernel.send(conntrack.Update, g.kernel.entries[tu])
	g.counts(web.ServiceKey, map[string]string{one: "0/1/0"})
	if w := g.engine.counterWarnings(); w != nil {
		t.Errorf("warnings after the error: %s", w)
	}
}

// TestClosingIdle reads the counters now and then where nobody asks.
func TestClosingIdle(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	tu := tupleTo(web, "198.51.100.1:1000")
	g.connect(tu, 1)
	s := g.engine.model.services[web.ServiceKey].index[netip.MustParseAddrPort(one)].sched
	g.pass(idleRead)
	g.kernel.close(tu)
	g.pass(idleRead / 2)
	if s.Inactive() != 0 {
		t.Error("the counters were read for nobody")
	}
	g.pass(idleRead / 2)
	if s.Inactive() != 1 {
		t.Error("the counters were not read in time")
	}
}

// TestClosingIdleShare reads counters of so many real servers that it takes 10 ms
// no more often for nobody than the share of the time allows.
func TestClosingIdleShare(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	reads := 0
	g.rules.reading = func() {
		g.clock += 10 * time.Millisecond
		reads++
	}
	for range 100 {
		g.pass(idleRead / 4)
	}
	if most := int(g.clock / (10 * time.Millisecond * closedShare)); reads < most/2 || reads > most+1 {
		t.Errorf("read %d times within %v, want %d", reads, g.clock, most)
	}
}

// TestClosingTwiceWhileDraining counts the closing of a connection twice, as the
// rules may: a real server without new connections has an active one until a dump
// tells which have closed.
func TestClosingTwiceWhileDraining(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	open, other := tupleTo(web, "198.51.100.1:1000"), tupleTo(web, "198.51.100.1:1001")
	g.connect(open, 1)
	g.connect(other, 2)
	g.apply(update(web, one, 0))
	g.kernel.close(other)
	for mark := range g.kernel.closedQuiet {
		g.kernel.closedQuiet[mark]++
	}
	active := func() uint32 {
		t.Helper()
		list, err := g.engine.Counts(context.Background())
		if err != nil || len(list) != 1 {
			t.Fatalf("Counts: %v, %v", list, err)
		}
		if n := list[0].Conns.Active + list[0].Conns.Inactive; n != 2 {
			t.Errorf("want 2 connections, got %d", n)
		}
		return list[0].Conns.Active
	}
	if n := active(); n != 1 {
		t.Errorf("while nobody knows: want 1 active, got %d", n)
	}
	if !g.dumpAsked() {
		t.Error("no dump was asked for")
	}
	g.resync()
	if n := active(); n != 1 {
		t.Errorf("after a dump: want 1 active, got %d", n)
	}
	g.kernel.close(open)
	g.engine.readClosed()
	g.clock += 2 * settleTicks * time.Second / ticksASecond
	g.resync()
	if n := active(); n != 0 {
		t.Errorf("after both have closed: want 0 active, got %d", n)
	}
}

// TestClosingSameSequence has a client close its connection and open it again from
// the same port and with the same sequence number, again and again, within moments
// or some seconds: to the engine each SYN looks like a copy of the first. A dump is
// asked for before many connections of others are counted wrong, and puts all right.
func TestClosingSameSequence(t *testing.T) {
	for _, pause := range []time.Duration{10 * time.Millisecond, 4 * time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			g := newRig(t)
			g.apply(addOp(web), add(web, one, 1))
			const others = 200
			for n := range others {
				g.connect(tupleTo(web, client(n)), uint32(n))
			}
			s := g.engine.model.services[web.ServiceKey].servers[0]
			hostile := tupleTo(web, "192.0.2.77:7777")
			dumps := 0
			for turn := range 300 {
				g.connect(hostile, 7)
				g.pass(10 * time.Millisecond)
				g.kernel.close(hostile)
				g.pass(pause)
				if wrong := others - int(s.sched.Active()); wrong > doubtful+2 {
					t.Fatalf("turn %d: %d connections of others count as closed", turn, wrong)
				}
				if g.dumpAsked() {
					dumps++
					g.pass(4 * time.Second)
					g.resync()
					g.counts(web.ServiceKey, map[string]string{one: "200/1/0"})
				}
			}
			if most := 300 / doubtful; dumps == 0 || dumps > most {
				t.Errorf("want a dump, %d at most, got %d", most, dumps)
			}
		})
	}
}

// TestClosingPairs has a client send two SYNs at once for each of its connections:
// the first looks like one that has closed. A dump is asked for before many closings
// of others are undone.
func TestClosingPairs(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	const closed = 300
	for n := range closed {
		g.connect(tupleTo(web, client(n)), uint32(n))
		g.kernel.close(tupleTo(web, client(n)))
	}
	g.pass(4 * time.Second)
	s := g.engine.model.services[web.ServiceKey].servers[0]
	dumps := 0
	for n := range 300 {
		tu := tupleTo(web, client(1000+n))
		mark := g.queue(tu, 1)
		g.queue(tu, 2)
		g.kernel.begin(tu, mark, false)
		if wrong := int(s.sched.Active()) - (n + 1); wrong > doubtful+8 {
			t.Fatalf("pair %d: %d closed connections of others count as open", n, wrong)
		}
		if g.dumpAsked() {
			dumps++
			g.pass(4 * time.Second)
			g.resync()
			g.counts(web.ServiceKey, map[string]string{one: fmt.Sprintf("%d/%d/0", n+1, closed)})
		}
	}
	if most := 300 / doubtful; dumps == 0 || dumps > most {
		t.Errorf("want a dump, %d at most, got %d", most, dumps)
	}
}

// TestClosingCopies asks for no dump where SYNs come more than once.
func TestClosingCopies(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	for n := range 2 * doubtful {
		tu := tupleTo(web, client(n))
		g.queue(tu, uint32(n))
		g.connect(tu, uint32(n))
	}
	g.counts(web.ServiceKey, map[string]string{one: "128/0/0"})
	if g.dumpAsked() {
		t.Error("a dump was asked for")
	}
}
