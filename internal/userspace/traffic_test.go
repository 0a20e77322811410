package userspace

import (
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
)

// TestEstimate takes steps of two seconds, as ip_vs_est.c does: a quarter of the
// difference each, which comes close to a steady rate and back to zero.
func TestEstimate(t *testing.T) {
	var tr traffic
	step := func(n int, c counters) {
		for range n {
			tr.now.add(&c)
			tr.estimate()
		}
	}
	each := counters{connections: 20, packetsIn: 200, packetsOut: 100, bytesIn: 2_000_000, bytesOut: 40}
	step(1, each)
	want := ipvs.Stats{Connections: 20, PacketsIn: 200, PacketsOut: 100, BytesIn: 2_000_000, BytesOut: 40,
		ConnectionRate: 3, PacketRateIn: 25, PacketRateOut: 13, ByteRateIn: 250_000, ByteRateOut: 5}
	// 2.5 a second is 3 and 12.5 is 13: the kernel rounds 2.5 to 2 and 12.5 to 12.
	want.ConnectionRate, want.PacketRateOut = 2, 12
	if d := diff(want, tr.stats()); d != "" {
		t.Errorf("after one step (-want +got):\n%s", d)
	}
	step(60, each)
	s := tr.stats()
	if s.ConnectionRate != 10 || s.PacketRateIn != 100 || s.PacketRateOut != 50 || s.ByteRateIn < 999_999 || s.ByteRateOut != 20 {
		t.Errorf("steady: %+v", s)
	}
	step(80, counters{})
	s = tr.stats()
	if s.ConnectionRate != 0 || s.PacketRateIn != 0 || s.ByteRateIn != 0 || s.Connections != 20*61 {
		t.Errorf("idle: %+v", s)
	}
}

// TestZero sets counters and rates to zero, and leaves connections.
func TestZero(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), addOp(web6))
	g.connect(tupleTo(web, "198.51.100.1:1000"), 1)
	g.engine.estimate()
	if err := g.engine.Zero(t.Context(), web6.ServiceKey); err != nil {
		t.Fatal(err)
	}
	if s := g.engine.model.services[web.ServiceKey]; s.traffic.stats().Connections != 1 {
		t.Errorf("after Zero of another: %+v", s.traffic.stats())
	}
	if err := g.engine.Zero(t.Context(), web.ServiceKey); err != nil {
		t.Fatal(err)
	}
	s := g.engine.model.services[web.ServiceKey]
	if s.traffic.stats() != (ipvs.Stats{}) || s.servers[0].traffic.stats() != (ipvs.Stats{}) {
		t.Errorf("after Zero: %+v, %+v", s.traffic.stats(), s.servers[0].traffic.stats())
	}
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0"})
	if err := g.engine.Zero(t.Context(), udpService("192.0.2.10:80").ServiceKey); err == nil {
		t.Error("Zero of no service: want an error")
	}
}

// TestTrafficRenewed loses nothing of what was counted before everything was
// written again.
func TestTrafficRenewed(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	g.connect(tupleTo(web, "198.51.100.1:1000"), 1)
	g.connect(tupleTo(web, "198.51.100.1:1001"), 2)
	mark := g.engine.marks.of(1)
	g.kernel.traffic[mark] = [2]counted{{3, 300}, {2, 5000}}
	g.kernel.close(tupleTo(web, "198.51.100.1:1000"))
	g.rules.renews, g.rules.before = true, func(ruleset.Spec) {
		clear(g.kernel.traffic)
		clear(g.kernel.closed)
		clear(g.kernel.closedQuiet)
	}
	g.apply(add(web, two, 1))
	g.kernel.traffic[mark] = [2]counted{{1, 40}, {1, 60}}
	list, err := g.engine.Table(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := ipvs.Stats{Connections: 2, PacketsIn: 4, BytesIn: 340, PacketsOut: 3, BytesOut: 5060}
	if got := list[0].Stats; got != want {
		t.Errorf("want %+v, got %+v", want, got)
	}
	g.counts(web.ServiceKey, map[string]string{one: "1/1/0", two: "0/0/0"})
}

// TestTraffic adds what the rules counted to the statistics, once, also where
// counters begin again.
func TestTraffic(t *testing.T) {
	g := newRig(t)
	g.engine.kernelQueues = noQueues
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	svc := g.engine.model.services[web.ServiceKey]
	mark := func(s *server) uint32 { return g.engine.marks.of(s.id) }
	want := func(what string, of, first, second counted, back counted) {
		t.Helper()
		list, err := g.engine.Table(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]ipvs.Stats)
		got["service"] = list[0].Stats
		for _, d := range list[0].Destinations {
			got[d.Address.String()] = d.Stats
		}
		if d := diff(map[string]ipvs.Stats{
			"service": {PacketsIn: of.packets, BytesIn: of.bytes, PacketsOut: back.packets, BytesOut: back.bytes},
			one:       {PacketsIn: first.packets, BytesIn: first.bytes, PacketsOut: back.packets, BytesOut: back.bytes},
			two:       {PacketsIn: second.packets, BytesIn: second.bytes},
		}, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	first, second := svc.servers[0], svc.servers[1]
	g.kernel.traffic[mark(first)] = [2]counted{{3, 300}, {2, 5000}}
	g.kernel.traffic[mark(second)] = [2]counted{{1, 60}}
	g.kernel.traffic[77<<8] = [2]counted{{1, 60}} // nobody's
	want("at first", counted{4, 360}, counted{3, 300}, counted{1, 60}, counted{2, 5000})
	g.kernel.traffic[mark(first)] = [2]counted{{4, 350}, {2, 5000}}
	want("more", counted{5, 410}, counted{4, 350}, counted{1, 60}, counted{2, 5000})
	g.kernel.traffic[mark(first)] = [2]counted{{4, 200}, {1, 40}}
	want("begun again", counted{9, 610}, counted{8, 550}, counted{1, 60}, counted{3, 5040})

	if err := g.engine.Zero(t.Context(), web.ServiceKey); err != nil {
		t.Fatal(err)
	}
	g.kernel.traffic[mark(first)] = [2]counted{{5, 260}, {1, 40}}
	want("after Zero", counted{1, 60}, counted{1, 60}, counted{}, counted{})

	// A deleted real server's is its service's, and not its own when it comes back.
	g.apply(remove(web, two))
	g.kernel.traffic[mark(second)] = [2]counted{{2, 160}}
	g.apply(add(web, two, 1))
	want("revived", counted{2, 160}, counted{1, 60}, counted{}, counted{})

	g.rules.trafficError = errTest
	g.pass(time.Second)
	g.engine.estimate()
	if err := g.engine.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w := strings.Join(g.engine.Warnings(), "\n"); !strings.Contains(w, "packets and bytes are not counted: "+errTest.Error()) {
		t.Errorf("warnings: %s", w)
	}
}

// TestCountsWithoutTraffic reads the connections, which the daemon does each
// second: packets wait while counters are read that nobody wants.
func TestCountsWithoutTraffic(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	before := g.rules.trafficReads
	if _, err := g.engine.Counts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := g.rules.trafficReads - before; n != 0 {
		t.Errorf("Counts read the traffic %d times", n)
	}
	if _, err := g.engine.Table(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := g.rules.trafficReads - before; n != 1 {
		t.Errorf("Table: want one reading of the traffic, got %d", n)
	}
}
