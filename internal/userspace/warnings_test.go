package userspace

import (
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/nfqueue"
)

// TestWarnings lets one thing after the other go wrong.
func TestWarnings(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	g.engine.opt.QueueBase = 100
	queues := []nfqueue.KernelQueue{{Number: 99, Waiting: 9000, Dropped: 9}, {Number: 100}}
	g.engine.kernelQueues = func() ([]nfqueue.KernelQueue, error) { return queues, nil }
	look := func(want ...string) {
		t.Helper()
		g.pass(time.Second)
		if err := g.engine.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := g.engine.Warnings()
		if len(got) != len(want) {
			t.Errorf("want %d warnings, got %q", len(want), got)
			return
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("warning %d: want %q in it, got %q", i, want[i], got[i])
			}
		}
	}
	g.kernel.stats = conntrack.Stats{Max: 1000, Drop: 7}
	look()
	g.kernel.stats.Drop, g.kernel.stats.InsertFailed = 9, 2
	look("clashed with another (2, the last 0s ago)")
	g.pass(warnFor)
	g.kernel.stats.Drop = 11
	look("table was full, and new connections were dropped (9, the last 0s ago)")
	look("(9, the last 1s ago)")
	g.pass(warnFor)
	look()
	g.kernel.stats.Entries = 800
	queues[1].Waiting, queues[1].Dropped = 5000, 3
	look("queue 100: 5000 of 8192", "800 of 1000", "queue was full")
	queues[1].Waiting, g.kernel.stats.Entries = 0, 0
	g.pass(warnFor)
	g.answer(nfqueue.Packet{Payload: []byte("nonsense")})
	g.kernel.begin(tupleTo(web, "198.51.100.1:1000"), 0x7700, true)
	g.kernel.lost = true
	look("events came too fast", "no form that is known")
	g.pass(warnFor)
	for range 2 { // each dump meets them again
		if err := g.engine.resync(t.Context()); err != nil {
			t.Fatal(err)
		}
		look("1 connections have marks of real servers that are not known")
	}
	g.kernel.end(tupleTo(web, "198.51.100.1:1000"))
	if err := g.engine.resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	look()
	g.kernel.begin(tupleTo(web, "198.51.100.1:1001"), g.engine.marks.of(1), true)
	g.connect(tupleTo(web, "198.51.100.1:1002"), 1)
	look("and were balanced by weight alone (1, ")
	g.listeners = 1
	g.rules.abilities.Reject = errTest
	g.pass(warnFor)
	look("test error", "another program listens")
	if err := g.engine.maintain(t.Context()); err != nil || !g.rules.spec.AllEvents || g.host[ctEvents] != "1" {
		t.Errorf("the other program gets no events: %v, %+v, %v", err, g.rules.spec, g.host)
	}
	g.listeners = 0
	look("test error")
	if err := g.engine.maintain(t.Context()); err != nil || g.rules.spec.AllEvents || g.host[ctEvents] != "0" {
		t.Errorf("events for nobody: %v, %+v, %v", err, g.rules.spec, g.host)
	}
}

func TestDescribe(t *testing.T) {
	g := newRig(t)
	g.engine.opt.QueueBase = 100
	if want, got := "xtables' NFQUEUE 100", g.engine.Describe(); got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	g.rules.abilities.NativeQueue, g.engine.opt.Queues = true, 3
	if want, got := "nftables' queue 100 to 102", g.engine.Describe(); got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}
