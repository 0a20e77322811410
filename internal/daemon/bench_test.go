package daemon

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// nth returns the n-th address of a network.
func nth(network string, n int) netip.Addr {
	b := netip.MustParseAddr(network).As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b)
}

// large is a configuration of 5,000 services with 10 checked servers each.
func large(net *fakeNet) *config.Config {
	c := conf()
	for i := range 5000 {
		vs := config.VirtualService{
			Name:    nth("198.18.0.0", i).String(),
			Service: ipvs.Service{ServiceKey: ipvs.AddrService(ipvs.TCP, netip.AddrPortFrom(nth("198.18.0.0", i), 80)), Scheduler: "wlc"},
		}
		for j := range 10 {
			rs := server("10.0.0.2:80", 1)
			rs.Address = netip.AddrPortFrom(nth("10.0.0.0", 10*i+j), 80)
			rs.Probes = append(rs.Probes, (&rig{net: net}).probe("tcp", rs.Address.String()))
			vs.RealServers = append(vs.RealServers, rs)
		}
		c.VirtualServices = append(c.VirtualServices, vs)
	}
	return c
}

// benchDaemon is a daemon that has made its first pass.
func benchDaemon(b *testing.B) *Daemon {
	b.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := memory.Open(b.TempDir()+"/run", log)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close() })
	e := engine{ipvstest.New()}
	d, err := assemble(parts{
		log: log, engine: e, watched: e, host: &fakeHost{}, store: store,
		notifier: &notifier{log: log, send: func(string) error { return nil }},
		loaded:   &loaded{Config: large(&fakeNet{}), at: time.Now()},
	})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := d.owner.pass(context.Background()); err != nil {
		b.Fatal(err)
	}
	return d
}

// A pass over a right table of 50,000 real servers.
func BenchmarkQuietPass(b *testing.B) {
	d := benchDaemon(b)
	for b.Loop() {
		if _, err := d.owner.pass(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// The same with one server that fails or recovers.
func BenchmarkFlapPass(b *testing.B) {
	d := benchDaemon(b)
	k := ipvs.DestinationKey{Service: d.owner.fleet.Services[7].ServiceKey, Address: d.owner.fleet.Services[7].Servers[3].Address}
	down := false
	for b.Loop() {
		down = !down
		d.owner.mem.health[k] = down // pending counts as what it was
		if r, err := d.owner.pass(context.Background()); err != nil || len(r.Changes) != 1 {
			b.Fatal(r.Changes, err)
		}
	}
}
