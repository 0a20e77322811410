package userspace

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
)

// client is a flow to web, by number.
func client(n int) string { return fmt.Sprintf("198.51.100.%d:%d", 1+n/1000, 1000+n%1000) }

// TestQuietEnd counts connections no more when their time is over, and again where
// a dump has them still. The table of flows keeps them until one has not.
func TestQuietEnd(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	for n := range 4 {
		g.connect(tupleTo(web, client(n)), uint32(n))
	}
	for n := range 3 {
		g.pass(10 * time.Second)
		g.kernel.close(tupleTo(web, client(n)))
		g.pass(idleRead)
	}
	want := func(counts string, flows int) {
		t.Helper()
		g.counts(web.ServiceKey, map[string]string{one: counts})
		if n := g.engine.flows.Len(); n != flows {
			t.Errorf("want %d flows in the table, got %d", flows, n)
		}
	}
	want("1/3/0", 4)
	g.pass(ruleset.TimeWait - 15*time.Second)
	want("1/2/0", 4)
	g.pass(10 * time.Second)
	want("1/1/0", 4)
	// The first one goes on in the direction that is open.
	g.kernel.end(tupleTo(web, client(1)))
	g.resync()
	want("1/2/0", 3)
	g.pass(10 * time.Second)
	want("1/1/0", 3)
	g.kernel.end(tupleTo(web, client(0)))
	g.kernel.end(tupleTo(web, client(2)))
	g.resync()
	want("1/0/0", 1)
	g.pass(ruleset.TimeWait)
	want("1/0/0", 1)
}

// TestQuietAgain uses tuples again: before their time is over, after it, and
// before the rules' counter of the closing is read.
func TestQuietAgain(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	const conns = 4
	for n := range conns {
		g.connect(tupleTo(web, client(n)), uint32(n))
	}
	want := func(when, counts string) {
		t.Helper()
		g.counts(web.ServiceKey, map[string]string{one: counts})
		s := g.engine.model.services[web.ServiceKey].servers[0]
		if g.engine.flows.Len() != conns || s.closing.open != conns || s.closing.ahead < 0 {
			t.Errorf("%s: %d flows, %+v", when, g.engine.flows.Len(), s.closing)
		}
	}
	for n := range 3 {
		g.kernel.close(tupleTo(web, client(n)))
	}
	g.pass(time.Second)
	want("closed", "1/3/0")
	g.connect(tupleTo(web, client(0)), 10)
	want("before the time", "2/2/0")
	g.kernel.close(tupleTo(web, client(0)))
	g.connect(tupleTo(web, client(0)), 20) // no tick between
	want("at once", "2/2/0")
	g.pass(ruleset.TimeWait + 2*endStep)
	g.connect(tupleTo(web, client(1)), 11)
	want("after the time", "3/0/0")
	g.connect(tupleTo(web, client(2)), 12)
	want("all", "4/0/0")
	if n := g.engine.model.services[web.ServiceKey].traffic.now.connections; n != 8 {
		t.Errorf("connections: want 8, got %d", n)
	}
	g.pass(2 * ruleset.TimeWait)
	want("nothing is left", "4/0/0")
}

// TestQuietAgainInTime ends a connection at its own time, and not at that of one
// whose tuple was used again.
func TestQuietAgainInTime(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	for n := range 2 {
		g.connect(tupleTo(web, client(n)), uint32(n))
	}
	g.kernel.close(tupleTo(web, client(0)))
	g.pass(time.Second)
	g.connect(tupleTo(web, client(0)), 10)
	g.pass(time.Minute)
	g.kernel.close(tupleTo(web, client(1)))
	g.pass(time.Second)
	g.pass(ruleset.TimeWait - 10*time.Second)
	g.counts(web.ServiceKey, map[string]string{one: "1/1/0"})
	g.pass(15 * time.Second)
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0"})
}

// TestQuietReopenedLate lets conntrack go on with an entry after the time when it
// ought to have forgotten it.
func TestQuietReopenedLate(t *testing.T) {
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprint("told by a dump ", known), func(t *testing.T) {
			g := newRig(t)
			g.apply(addOp(web), add(web, one, 1))
			tu := tupleTo(web, client(0))
			g.connect(tu, 1)
			g.kernel.close(tu)
			g.pass(time.Second)
			if known {
				g.resync()
			}
			g.pass(ruleset.TimeWait + time.Minute)
			g.counts(web.ServiceKey, map[string]string{one: "0/0/0"})
			g.kernel.reopen(tu)
			g.pass(time.Second)
			g.counts(web.ServiceKey, map[string]string{one: "1/0/0"})
			g.resync()
			g.counts(web.ServiceKey, map[string]string{one: "1/0/0"})
		})
	}
}

// TestQuietNeverBegun has a SYN come again after seconds, since its flow never got
// as far as conntrack: it has not closed.
func TestQuietNeverBegun(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	for n := range 3 {
		g.connect(tupleTo(web, client(n)), uint32(n))
	}
	g.kernel.close(tupleTo(web, client(0)))
	g.pass(time.Second)
	lone := tupleTo(web, client(9))
	g.queue(lone, 77)
	g.pass(4 * time.Second)
	g.queue(lone, 77)
	g.counts(web.ServiceKey, map[string]string{one: "3/1/0"})
	g.kernel.close(tupleTo(web, client(1)))
	g.counts(web.ServiceKey, map[string]string{one: "2/2/0"})
}

// TestQuietAgainInDump uses a tuple again whose old entry is in a dump that runs.
func TestQuietAgainInDump(t *testing.T) {
	for name, weight := range map[string]uint32{"decided": 1, "refused": 0} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.apply(addOp(web), add(web, one, 1))
			tu := tupleTo(web, client(0))
			g.connect(tu, 1)
			g.kernel.close(tu)
			g.pass(time.Minute)
			g.apply(update(web, one, weight))
			g.kernel.during = func(*conntrack.Event) { g.connect(tu, 2) }
			g.resync()
			g.kernel.during = nil
			g.counts(web.ServiceKey, map[string]string{one: fmt.Sprintf("%d/0/0", weight)})
			if n := g.engine.model.services[web.ServiceKey].traffic.now.connections; n != 1+uint64(weight) {
				t.Errorf("connections: want %d, got %d", 1+weight, n)
			}
		})
	}
}

// TestQuietReopened lets conntrack go on with the entry of a connection that had
// closed quietly: that closing is no end.
func TestQuietReopened(t *testing.T) {
	for _, read := range []time.Duration{0, time.Second} {
		t.Run(fmt.Sprint("counter read after ", read), func(t *testing.T) {
			g := newRig(t)
			g.apply(addOp(web), add(web, one, 1))
			again, last := tupleTo(web, client(0)), tupleTo(web, client(1))
			for n := range 2 {
				g.connect(tupleTo(web, client(n)), uint32(n))
			}
			g.kernel.close(again)
			if read > 0 {
				g.pass(read)
			}
			g.kernel.reopen(again)
			g.pass(time.Second)
			g.counts(web.ServiceKey, map[string]string{one: "2/0/0"})
			g.pass(time.Minute)
			g.resync()
			g.kernel.close(last)
			g.pass(time.Second)
			g.counts(web.ServiceKey, map[string]string{one: "1/1/0"})
			g.pass(ruleset.TimeWait - 10*time.Second) // of the first closing, it is over
			g.counts(web.ServiceKey, map[string]string{one: "1/1/0"})
			g.pass(15 * time.Second)
			g.counts(web.ServiceKey, map[string]string{one: "1/0/0"})
		})
	}
}

// TestQuietAlternating lets a client send SYN and FIN by turns on a connection that
// it has closed: each FIN after a SYN closes once more, and none of the closings
// before it is an end. The connections of others end at their own times.
func TestQuietAlternating(t *testing.T) {
	for name, read := range map[string]func(g *rig, turn int){
		"each read at once":   func(g *rig, _ int) { g.pass(idleRead) },
		"none read":           func(*rig, int) {},
		"SYN read before FIN": func(g *rig, turn int) { g.engine.drain() },
		"dumps between": func(g *rig, turn int) {
			g.pass(idleRead)
			if turn%10 == 5 {
				g.pass(4 * time.Second)
				g.resync()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.apply(addOp(web), add(web, one, 1))
			for n := range 6 {
				g.connect(tupleTo(web, client(n)), uint32(n))
			}
			want := func(when, counts string) {
				t.Helper()
				g.pass(idleRead)
				g.counts(web.ServiceKey, map[string]string{one: counts})
			}
			g.pass(5 * time.Second)
			g.kernel.close(tupleTo(web, client(1)))
			want("one has closed", "5/1/0")
			hostile := tupleTo(web, client(0))
			for turn := range 100 {
				g.kernel.close(hostile)
				read(g, turn)
				g.kernel.reopen(hostile)
				read(g, turn)
			}
			want("after the last SYN", "5/1/0")
			g.kernel.close(hostile)
			want("after the last FIN", "4/2/0")
			g.pass(ruleset.TimeWait - 10*time.Second)
			g.kernel.close(tupleTo(web, client(2)))
			g.kernel.close(tupleTo(web, client(3)))
			g.pass(idleRead)
			g.pass(15 * time.Second)
			want("those that closed first are over", "2/2/0")
			g.pass(ruleset.TimeWait - 10*time.Second)
			want("all are over", "2/0/0")
		})
	}
}

// TestQuietRestart counts closed connections that there were before this engine,
// until a dump has them no more.
func TestQuietRestart(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	for n := range 3 {
		g.connect(tupleTo(web, client(n)), uint32(n))
	}
	g.kernel.close(tupleTo(web, client(0)))
	g.pass(time.Second)
	g.kernel.close(tupleTo(web, client(1))) // while no lbd runs
	g.start()
	g.counts(web.ServiceKey, map[string]string{one: "1/2/0"})
	g.kernel.end(tupleTo(web, client(0)))
	g.connect(tupleTo(web, client(1)), 11)
	g.counts(web.ServiceKey, map[string]string{one: "2/1/0"})
	g.kernel.close(tupleTo(web, client(2)))
	g.pass(time.Second)
	g.counts(web.ServiceKey, map[string]string{one: "1/2/0"})
	g.pass(time.Minute)
	g.resync()
	g.counts(web.ServiceKey, map[string]string{one: "1/1/0"})
}

// TestQuietServers says which real servers' connections need no event at their
// ends.
func TestQuietServers(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*ipvs.Service, *ipvs.Destination)
		want   bool
	}{
		"plain": {func(*ipvs.Service, *ipvs.Destination) {}, true},
		"persistent": {func(s *ipvs.Service, _ *ipvs.Destination) {
			s.Flags, s.Persistence.Timeout = ipvs.FlagPersistent, time.Minute
		}, false},
		"upper threshold": {func(_ *ipvs.Service, d *ipvs.Destination) { d.UpperThreshold = 5 }, false},
		"signals":         {func(s *ipvs.Service, _ *ipvs.Destination) { s.Scheduler = "least-time" }, false},
		"direct routing":  {func(_ *ipvs.Service, d *ipvs.Destination) { d.Forward = ipvs.Route }, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			svc, server := web, add(web, one, 1)
			tt.change(&svc, &server.Destination)
			server.Service = svc
			g.apply(addOp(svc), server)
			quiet := func() bool { return g.rules.spec.Servers[0].Quiet }
			if quiet() != tt.want {
				t.Errorf("want %v", tt.want)
			}
			// Whoever else listens hears of all ends.
			g.engine.others.Store(true)
			if err := g.engine.maintain(t.Context()); err != nil || quiet() {
				t.Errorf("with another listener: quiet %v, %v", quiet(), err)
			}
			g.engine.others.Store(false)
			g.apply(remove(svc, one))
			if quiet() {
				t.Error("a deleted one is quiet")
			}
		})
	}
}

// TestQuietPile asks for a dump where flows pile up that may have ended.
func TestQuietPile(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	asked := func() bool {
		g.pass(time.Second)
		return g.dumpAsked()
	}
	g.engine.resyncAbove = 10
	for n := range 10 {
		g.connect(tupleTo(web, client(n)), uint32(n))
	}
	if asked() {
		t.Error("asked for a dump with 10 flows")
	}
	g.connect(tupleTo(web, client(10)), 1)
	if !asked() || asked() {
		t.Error("want to be asked once with 11 flows")
	}
	g.resync()
	if want := 2*11 + freeFlows; g.engine.resyncAbove != want {
		t.Errorf("after the dump: want the next above %d flows, got %d", want, g.engine.resyncAbove)
	}
}

// TestQuietDeleted asks for a dump where expire_nodest_conn ends connections.
func TestQuietDeleted(t *testing.T) {
	g := newRig(t)
	if _, err := g.engine.SetSysctl(sysctlNodest, "1"); err != nil {
		t.Fatal(err)
	}
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	for n := range 2 {
		g.connect(tupleTo(web, client(n)), uint32(n))
		g.kernel.close(tupleTo(web, client(n)))
	}
	g.pass(time.Second)
	g.apply(remove(web, one))
	if !g.dumpAsked() {
		t.Error("no dump was asked for")
	}
	g.pass(10 * time.Second)
	g.resync()
	if n := g.engine.flows.Len(); n != 1 {
		t.Errorf("want 1 flow, got %d", n)
	}
}

// TestTimeWait takes the time from the host where the rules do not say.
func TestTimeWait(t *testing.T) {
	g := newRig(t)
	for _, tt := range []struct {
		err  error
		host string
		want time.Duration
	}{{nil, "7", ruleset.TimeWait}, {errTest, "7", 7 * time.Second}, {errTest, "soon", 7 * time.Second}, {errTest, "30", 30 * time.Second}} {
		g.rules.abilities.CTTimeout, g.host[ctTimeWait] = tt.err, tt.host
		g.engine.noteTimeWait()
		if g.engine.timeWait != tt.want {
			t.Errorf("%+v: got %v", tt, g.engine.timeWait)
		}
	}
	g.engine.timeWait = 30 * time.Second
	g.apply(addOp(web), add(web, one, 1))
	g.connect(tupleTo(web, client(0)), 1)
	g.kernel.close(tupleTo(web, client(0)))
	g.pass(time.Second)
	g.pass(33 * time.Second)
	s := g.engine.model.services[web.ServiceKey].index[netip.MustParseAddrPort(one)]
	if s.sched.Inactive() != 0 || s.ends.over != 1 {
		t.Errorf("%d inactive, %+v", s.sched.Inactive(), s.ends)
	}
	if strings.Contains(g.log.String(), "level=ERROR") {
		t.Error(g.log)
	}
}
