package userspace

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
)

// TestHandshakes tells each thing once, of live real servers, whatever the rules'
// counters do meanwhile.
func TestHandshakes(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	mark := func(i int) uint32 { return g.engine.marks.of(g.engine.model.services[web.ServiceKey].servers[i].id) }
	m1, m2 := mark(0), mark(1)
	key := func(i int) ipvs.DestinationKey {
		return g.engine.model.services[web.ServiceKey].servers[i].key()
	}
	want := func(what string, want ...Handshakes) {
		t.Helper()
		got, err := g.engine.Handshakes()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(ipvs.DestinationKey{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	say := func(h ...handshake) { g.rules.handshakes = h }
	want("nothing yet")
	say(handshake{m1, ruleset.Tried, 5}, handshake{m1, ruleset.Answered, 3}, handshake{m2, ruleset.Reset, 2},
		handshake{m2, ruleset.UnreachableUDP, 1}, handshake{m2, ruleset.Unreachable, 6}, handshake{m2, ruleset.Withdrawn, 4}, handshake{0x77700, ruleset.Tried, 9})
	want("the first", Handshakes{DestinationKey: key(0), Tried: 5, Answered: 3},
		Handshakes{DestinationKey: key(1), Reset: 2, Unreachable: 6, Withdrawn: 4, UnreachableUDP: 1})
	want("nothing new")
	say(handshake{m2, ruleset.Reset, 3}, handshake{m2, ruleset.Unreachable, 6}, handshake{m2, ruleset.Withdrawn, 4}, handshake{m2, ruleset.UnreachableUDP, 1})
	want("one left out", Handshakes{DestinationKey: key(1), Reset: 1})
	say(handshake{m1, ruleset.Tried, 6}, handshake{m1, ruleset.Tried, 6}, handshake{m1, ruleset.Answered, 3}, handshake{m2, ruleset.Reset, 1})
	want("one twice, one begun again", Handshakes{DestinationKey: key(0), Tried: 1}, Handshakes{DestinationKey: key(1), Reset: 1})
	g.apply(remove(web, two))
	say(handshake{m1, ruleset.Tried, 6}, handshake{m1, ruleset.Answered, 3}, handshake{m2, ruleset.Reset, 9})
	want("a dead real server")
	g.rules.handshakesError = errors.New("no luck")
	if _, err := g.engine.Handshakes(); err == nil {
		t.Error("no error")
	}
	g.rules.handshakesError = nil
	say(handshake{m1, ruleset.Tried, 7}, handshake{m1, ruleset.Answered, 3})
	want("after an error", Handshakes{DestinationKey: key(0), Tried: 1})
}

// TestWatchHandshakes writes rules only where they change, and those of services
// that come later at once.
func TestWatchHandshakes(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	watch := func(writes int, keys ...ipvs.ServiceKey) {
		t.Helper()
		before := g.rules.applied
		if err := g.engine.WatchHandshakes(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
		if got := g.rules.applied - before; got != writes {
			t.Errorf("watch %v: want %d writes, got %d", keys, writes, got)
		}
	}
	passive := func(want ...bool) {
		t.Helper()
		var got []bool
		for _, s := range g.rules.spec.Services {
			got = append(got, s.Passive)
		}
		if d := diff(want, got); d != "" {
			t.Errorf("in the rules (-want +got):\n%s", d)
		}
	}
	passive(false)
	watch(0)
	watch(0, web6.ServiceKey)
	passive(false)
	watch(1, web.ServiceKey, web6.ServiceKey)
	passive(true)
	watch(0, web.ServiceKey, web6.ServiceKey)
	g.apply(addOp(web6))
	passive(true, true)
	g.rules.fail = errors.New("no luck")
	if err := g.engine.WatchHandshakes(t.Context(), nil); err == nil {
		t.Error("no error")
	}
	g.rules.fail = nil
	if err := g.engine.maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	passive(false, false)
}

// TestHandshakesUDP takes what comes back of datagrams from the traffic, less the
// ICMP errors in it.
func TestHandshakesUDP(t *testing.T) {
	g := newRig(t)
	dns := udpService("192.0.2.10:53")
	g.apply(addOp(dns), add(dns, one, 1), addOp(web), add(web, two, 1))
	server := func(s ipvs.Service) *server { return g.engine.model.services[s.ServiceKey].servers[0] }
	m1, m2 := g.engine.marks.of(server(dns).id), g.engine.marks.of(server(web).id)
	g.rules.handshakes = []handshake{{m1, ruleset.UnreachableUDP, 3}, {m2, ruleset.UnreachableUDP, 0}}
	g.kernel.traffic = map[uint32][2]counted{m1: {{packets: 50}, {packets: 10}}, m2: {{packets: 50}, {packets: 20}}}
	for _, want := range [][]Handshakes{{{DestinationKey: server(dns).key(), AnsweredUDP: 7, UnreachableUDP: 3}}, nil} {
		got, err := g.engine.Handshakes()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(ipvs.DestinationKey{})); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	reads := g.rules.trafficReads
	g.apply(deleteOp(dns))
	g.rules.handshakes = []handshake{{m2, ruleset.Tried, 1}}
	if _, err := g.engine.Handshakes(); err != nil || g.rules.trafficReads != reads {
		t.Errorf("with TCP alone: traffic read %d times, %v", g.rules.trafficReads-reads, err)
	}
}

// TestHandshakesSwitchedOn counts from the time on at which services are watched,
// also for the second time: answers of before are no successes, and segments that
// came twice no connections that were withdrawn.
func TestHandshakesSwitchedOn(t *testing.T) {
	g := newRig(t)
	dns := udpService("192.0.2.10:53")
	g.apply(addOp(dns), add(dns, one, 1), addOp(web), add(web, two, 1))
	server := func(s ipvs.Service) *server { return g.engine.model.services[s.ServiceKey].servers[0] }
	m1, m2 := g.engine.marks.of(server(dns).id), g.engine.marks.of(server(web).id)
	watch := func(keys ...ipvs.ServiceKey) {
		t.Helper()
		if err := g.engine.WatchHandshakes(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
	}
	read := func(what string, back, tried uint64, want ...Handshakes) {
		t.Helper()
		g.kernel.traffic = map[uint32][2]counted{m1: {{packets: back}, {packets: back}}}
		g.rules.handshakes = []handshake{{m1, ruleset.UnreachableUDP, 0}, {m2, ruleset.Tried, tried}}
		got, err := g.engine.Handshakes()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(ipvs.DestinationKey{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	g.kernel.traffic = map[uint32][2]counted{m1: {{packets: 1000}, {packets: 1000}}}
	server(web).repeated = 7
	watch(dns.ServiceKey, web.ServiceKey)
	read("the first", 1002, 1, Handshakes{DestinationKey: server(web).key(), Tried: 1}, Handshakes{DestinationKey: server(dns).key(), AnsweredUDP: 2})
	server(web).repeated += 2
	read("the second", 1003, 4, Handshakes{DestinationKey: server(web).key(), Tried: 3, Withdrawn: 2},
		Handshakes{DestinationKey: server(dns).key(), AnsweredUDP: 1})
	watch()
	g.kernel.traffic = map[uint32][2]counted{m1: {{packets: 2000}, {packets: 2000}}}
	server(web).repeated += 5
	watch(dns.ServiceKey, web.ServiceKey)
	read("again", 2001, 6, Handshakes{DestinationKey: server(web).key(), Tried: 6}, Handshakes{DestinationKey: server(dns).key(), AnsweredUDP: 1})
	read("rules that began again", 2004, 2, Handshakes{DestinationKey: server(web).key(), Tried: 2}, Handshakes{DestinationKey: server(dns).key(), AnsweredUDP: 3})
}

// TestHandshakesRevived switches passive on while real servers are deleted, one of
// them with its service, and have flows: what was before does not count when they
// come back.
func TestHandshakesRevived(t *testing.T) {
	g := newRig(t)
	dns := udpService("192.0.2.10:53")
	g.apply(addOp(dns), add(dns, one, 1), addOp(web), add(web, two, 1))
	servers := map[ipvs.Service]*server{}
	for _, svc := range []ipvs.Service{dns, web} {
		if g.connect(tupleTo(svc, "198.51.100.1:4000"), 1) == "" {
			t.Fatalf("%v: no real server", svc.ServiceKey)
		}
		servers[svc] = g.engine.model.services[svc.ServiceKey].servers[0]
	}
	m1, m2 := g.engine.marks.of(servers[dns].id), g.engine.marks.of(servers[web].id)
	traffic := func(back uint64) {
		g.kernel.traffic = map[uint32][2]counted{m1: {{packets: back}, {packets: back}}}
	}
	traffic(1000)
	servers[web].repeated = 7
	g.apply(remove(dns, one), deleteOp(web))
	for _, watched := range [][]ipvs.ServiceKey{{web.ServiceKey}, {web.ServiceKey, dns.ServiceKey}} {
		if err := g.engine.WatchHandshakes(t.Context(), watched); err != nil {
			t.Fatal(err)
		}
	}
	g.apply(add(dns, one, 1), addOp(web), add(web, two, 1))
	for _, s := range servers {
		if s.dead {
			t.Fatalf("%v did not come back", s.key())
		}
	}
	traffic(1002)
	g.rules.handshakes = []handshake{{m1, ruleset.UnreachableUDP, 0}, {m2, ruleset.Tried, 1}}
	got, err := g.engine.Handshakes()
	if err != nil {
		t.Fatal(err)
	}
	want := []Handshakes{{DestinationKey: servers[web].key(), Tried: 1}, {DestinationKey: servers[dns].key(), AnsweredUDP: 2}}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(ipvs.DestinationKey{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
