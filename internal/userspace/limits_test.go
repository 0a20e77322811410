package userspace

import (
	"fmt"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/nfqueue"
	"github.com/lbd-project/lbd/ipvs"
)

// TestFlowLimit floods the engine with first packets that nothing follows: it
// keeps no more than it has room for, still knows its flows, and takes new ones
// again after a resync.
func TestFlowLimit(t *testing.T) {
	for _, failOpen := range []bool{true, false} {
		g := newRig(t)
		g.engine.kernelQueues = noQueues
		g.engine.opt.FailOpen = failOpen
		g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
		g.engine.maxFlows = 20
		known := tupleTo(web, "198.51.100.1:1000")
		if got := g.connect(known, 1); got != two {
			t.Fatalf("first: want %s, got %s", two, got)
		}
		for i := range 40 {
			tu := tupleTo(web, fmt.Sprintf("203.0.113.1:%d", 2000+i))
			v := g.answer(nfqueue.Packet{Payload: firstPacket(tu, 7), Length: 60})
			if i < 19 && !v.SetMark || i >= 19 && v != (nfqueue.Verdict{Accept: failOpen}) {
				t.Errorf("fail open %v, packet %d: %+v", failOpen, i, v)
			}
		}
		if n := g.engine.flows.Len(); n != 20 {
			t.Errorf("flows: want 20, got %d", n)
		}
		g.counts(web.ServiceKey, map[string]string{one: "10/0/0", two: "10/0/0"})
		// A retransmission of what is known needs no room.
		if v := g.answer(nfqueue.Packet{Payload: firstPacket(known, 1), Length: 60}); !v.SetMark {
			t.Errorf("the same packet: %+v", v)
		}
		if !g.dumpAsked() {
			t.Error("no resync was asked for")
		}
		if err := g.engine.look(t.Context()); err != nil { // the first look takes counters as they are
			t.Fatal(err)
		}
		g.engine.maxFlows = 20
		g.queueAny("203.0.113.1:3000")
		if err := g.engine.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w := g.engine.Warnings(); len(w) != 1 {
			t.Errorf("want one warning, got %q", w)
		}
		g.pass(5 * time.Second)
		g.resync()
		g.counts(web.ServiceKey, map[string]string{one: "0/0/0", two: "1/0/0"})
		if got := g.connect(tupleTo(web, "198.51.100.1:1001"), 1); got != one {
			t.Errorf("after the flood: want %s, got %q", one, got)
		}
	}
	for max, want := range map[uint32]int{0: 1 << 20, 262144: 1 << 20, 1 << 30: 1 << 31} {
		if got := flowLimit(max); got != want {
			t.Errorf("limit where conntrack has %d: want %d, got %d", max, want, got)
		}
	}
}

func noQueues() ([]nfqueue.KernelQueue, error) { return nil, nil }

// queueAny queues a first packet, whatever becomes of it.
func (g *rig) queueAny(client string) {
	g.answer(nfqueue.Packet{Payload: firstPacket(tupleTo(web, client), 7), Length: 60})
}

// TestFlowLimitFollowsConntrack takes the limit from the host.
func TestFlowLimitFollowsConntrack(t *testing.T) {
	g := newRig(t)
	g.engine.kernelQueues = noQueues
	g.kernel.stats = conntrack.Stats{Max: 3 << 20}
	if err := g.engine.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := g.engine.maxFlows; got != 6<<20 {
		t.Errorf("want %d, got %d", 6<<20, got)
	}
}

// TestTemplateLimit has more clients than there is room for: those that are
// remembered stay where they are, the others are balanced.
func TestTemplateLimit(t *testing.T) {
	g := newRig(t)
	svc := web
	svc.Scheduler, svc.Flags, svc.Persistence.Timeout = "rr", ipvs.FlagPersistent, time.Minute
	g.apply(addOp(svc), add(svc, one, 1), add(svc, two, 1))
	g.engine.maxTemplates = 3
	port := 1000
	from := func(client int) string {
		port++
		return g.connect(tupleTo(svc, fmt.Sprintf("198.51.100.%d:%d", client, port)), 1)
	}
	first := make(map[int]string)
	for c := range 10 {
		if first[c] = from(c); first[c] == "" {
			t.Errorf("client %d was refused", c)
		}
	}
	if n := g.engine.templates.len(); n != 3 || g.engine.forgotten != 7 {
		t.Errorf("want 3 templates and 7 clients without, got %d, %d", n, g.engine.forgotten)
	}
	for range 3 {
		for c := range 3 {
			if got := from(c); got != first[c] {
				t.Errorf("client %d: want %s, got %s", c, first[c], got)
			}
		}
		from(9)
	}
	// Five each in turn, then each template's thrice, and client 9 in turn again.
	g.counts(svc.ServiceKey, map[string]string{one: "9/0/1", two: "13/0/2"})
}

// TestHalfOpen warns where most connections are not answered.
func TestHalfOpen(t *testing.T) {
	g := newRig(t)
	g.engine.kernelQueues = noQueues
	g.apply(addOp(web), add(web, one, 1))
	begin := func(n int, state uint8) {
		for range n {
			tu := tupleTo(web, fmt.Sprintf("198.51.%d.1:%d", len(g.kernel.entries)>>8, 1000+len(g.kernel.entries)&0xff))
			g.connect(tu, 1)
			g.kernel.entries[tu].TCPState = state
		}
	}
	warned := func() int {
		t.Helper()
		g.resync()
		if err := g.engine.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(g.engine.Warnings())
	}
	begin(999, tcpSynRecv)
	if warned() != 0 {
		t.Errorf("999 half open: %q", g.engine.Warnings())
	}
	begin(1, tcpSynSent)
	if warned() != 1 {
		t.Error("1000 half open, and no other: want a warning")
	}
	begin(1001, tcpSynRecv+1)
	if warned() != 0 {
		t.Errorf("1000 of 2001 half open: %q", g.engine.Warnings())
	}
}
