package userspace

import (
	"fmt"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/flow"
)

const testBusy = 0x20000000

// request sets or clears the bit of a flow whose request waits.
func (k *kernel) request(tu flow.Tuple, waits bool) {
	en := k.entries[tu]
	mark := en.Mark &^ testBusy
	if waits {
		mark |= testBusy
	}
	if mark != en.Mark {
		en.Mark = mark
		k.sendUpdate(en)
	}
}

// TestSignals follows requests on kept-open connections.
func TestSignals(t *testing.T) {
	g := newRig(t)
	g.kernel.marks = true
	svc := web
	svc.Scheduler = "least-active"
	g.apply(addOp(svc), add(svc, one, 1), add(svc, two, 1))
	if !g.rules.spec.Services[0].Signals {
		t.Error("the rules were not asked for signals")
	}
	tuples := make([]flow.Tuple, 4)
	at := make(map[flow.Tuple]string)
	for i := range tuples {
		tuples[i] = tupleTo(svc, fmt.Sprintf("198.51.100.1:%d", 1000+i))
		at[tuples[i]] = g.connect(tuples[i], uint32(i))
		// Each asks at once, so that the next goes elsewhere.
		g.kernel.request(tuples[i], true)
	}
	busy := func(want1, want2 uint32) {
		t.Helper()
		s := g.engine.model.services[svc.ServiceKey]
		if got1, got2 := s.servers[0].sched.Busy(), s.servers[1].sched.Busy(); got1 != want1 || got2 != want2 {
			t.Errorf("requests: want %d and %d, got %d and %d", want1, want2, got1, got2)
		}
		if n := int(want1 + want2); len(g.engine.requests) != n {
			t.Errorf("flows with a request: want %d, got %d", n, len(g.engine.requests))
		}
	}
	g.pass(0)
	busy(2, 2)
	// Those of the first server are answered after 200 ms and told twice.
	g.pass(200 * time.Millisecond)
	for _, tu := range tuples {
		if at[tu] == one {
			g.kernel.request(tu, false)
			g.kernel.sendUpdate(g.kernel.entries[tu])
		}
	}
	g.pass(0)
	busy(0, 2)
	s := g.engine.model.services[svc.ServiceKey]
	if got := s.servers[0].sched.Latency(); got != 200*time.Millisecond {
		t.Errorf("response time: want 200ms, got %v", got)
	}
	// A reset, which clears the bit as it closes, and an end without one take the
	// others away; no answer came.
	ended := 0
	for _, tu := range tuples {
		if at[tu] != two {
			continue
		}
		if ended++; ended == 1 {
			g.kernel.entries[tu].Mark &^= testBusy
			g.kernel.close(tu)
		} else {
			g.kernel.end(tu)
		}
	}
	g.pass(time.Second)
	busy(0, 0)
	if got := s.servers[1].sched.Latency(); got != 0 {
		t.Errorf("response time of what was never answered: want 0, got %v", got)
	}

	// The next engine counts a request that waits, and cannot time it.
	var alive flow.Tuple
	for _, tu := range tuples {
		if at[tu] == one {
			alive = tu
		}
	}
	g.kernel.request(alive, true)
	g.start()
	busyServer := g.engine.model.services[svc.ServiceKey].servers[0]
	if busyServer.sched.Busy() != 1 {
		t.Errorf("requests of the next engine: want 1, got %d", busyServer.sched.Busy())
	}
	g.pass(time.Second)
	g.kernel.request(alive, false)
	g.pass(time.Second)
	if busyServer.sched.Busy() != 0 || busyServer.sched.Latency() != 0 {
		t.Errorf("after its answer: %d requests, response time %v; want none", busyServer.sched.Busy(), busyServer.sched.Latency())
	}
}

// TestSignalsTimes are response times by the kernel's clock, a client that half
// closes and waits on, and an answer that comes far too late.
func TestSignalsTimes(t *testing.T) {
	g := newRig(t)
	svc := web
	svc.Scheduler = "least-time"
	g.apply(addOp(svc), add(svc, one, 1))
	tu := tupleTo(svc, "198.51.100.1:1000")
	g.connect(tu, 1)
	s := g.engine.model.services[svc.ServiceKey].servers[0].sched
	at := func(waits bool, ms int64) {
		g.kernel.entries[tu].At = 1e15 + ms*1e6
		g.kernel.request(tu, waits)
	}
	at(true, 0)
	at(false, 42) // read at once
	g.pass(time.Second)
	if got := s.Latency(); got != 42*time.Millisecond {
		t.Errorf("by the kernel's clock: want 42ms, got %v", got)
	}
	at(true, 10000)
	g.kernel.close(tu)
	g.pass(time.Second)
	if s.Busy() != 1 || s.Inactive() != 1 {
		t.Errorf("half closed: %d requests, %d inactive, want 1 and 1", s.Busy(), s.Inactive())
	}
	before := s.Latency()
	at(false, 10000+61000)
	g.pass(time.Second)
	if s.Busy() != 0 || s.Latency() != before {
		t.Errorf("after a minute: %d requests, response time %v, want 0 and %v", s.Busy(), s.Latency(), before)
	}
}

// TestSignalsUDP is a datagram that waits for its answer from the first on.
func TestSignalsUDP(t *testing.T) {
	g := newRig(t)
	svc := udpService("192.0.2.10:53")
	svc.Scheduler = "least-time"
	g.apply(addOp(svc), add(svc, one, 1))
	tu := tupleTo(svc, "198.51.100.1:1000")
	mark := g.queue(tu, 0)
	g.kernel.begin(tu, mark|testBusy, true)
	s := g.engine.model.services[svc.ServiceKey].servers[0].sched
	g.pass(100 * time.Millisecond)
	if s.Busy() != 1 {
		t.Errorf("requests: want 1, got %d", s.Busy())
	}
	g.kernel.request(tu, false)
	g.pass(30 * time.Millisecond)
	if s.Busy() != 0 || s.Latency() != 30*time.Millisecond {
		t.Errorf("requests and response time: want 0 and 30ms, got %d and %v", s.Busy(), s.Latency())
	}
}

// TestSignalsDecide has least-active look at requests that were answered a moment
// ago.
func TestSignalsDecide(t *testing.T) {
	g := newRig(t)
	svc := web
	svc.Scheduler = "least-active"
	g.apply(addOp(svc), add(svc, one, 1), add(svc, two, 1))
	a, b := tupleTo(svc, "198.51.100.1:1000"), tupleTo(svc, "198.51.100.1:1001")
	first, second := g.connect(a, 1), g.connect(b, 1)
	if first == second {
		t.Fatalf("both went to %s", first)
	}
	g.kernel.request(a, true)
	g.pass(0)
	g.kernel.request(a, false)
	g.kernel.request(b, true)
	if got := g.connect(tupleTo(svc, "198.51.100.1:1002"), 1); got != first {
		t.Errorf("want %s, whose request was answered, got %s", first, got)
	}
}

// TestSignalsNot keeps nothing of services whose scheduler does not ask.
func TestSignalsNot(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	if g.rules.spec.Services[0].Signals {
		t.Error("the rules were asked for signals")
	}
	tu := tupleTo(web, "198.51.100.1:1000")
	g.connect(tu, 1)
	g.kernel.request(tu, true)
	g.pass(time.Second)
	if len(g.engine.requests) != 0 || g.engine.model.services[web.ServiceKey].servers[0].sched.Busy() != 0 {
		t.Error("a request was counted")
	}
}
