package userspace

import (
	"testing"

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
