package daemon

import (
	"context"
	"encoding/binary"
	"log/slog"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
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

// large is a configuration of n services with 10 checked servers each.
func large(net *fakeNet, n int) *config.Config {
	c := conf()
	for i := range n {
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

// largeDaemon is a daemon of a large configuration, and its table, before its
// first pass.
func largeDaemon(tb testing.TB, services int) (*Daemon, *ipvstest.Fake) {
	tb.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := memory.Open(tb.TempDir()+"/run", log)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { store.Close() })
	table := ipvstest.New()
	e := engine{table}
	d, err := assemble(parts{
		log: log, opened: &opened{engine: e, watched: e}, host: &fakeHost{}, store: store,
		notifier: &notifier{log: log, send: func(string) error { return nil }},
		loaded:   &loaded{Config: large(&fakeNet{}, services), at: time.Now()},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return d, table
}

// benchDaemon is a daemon of 50,000 real servers that has made its first pass.
func benchDaemon(b *testing.B) *Daemon {
	b.Helper()
	d, _ := largeDaemon(b, 5000)
	if _, err := d.owner.pass(context.Background()); err != nil {
		b.Fatal(err)
	}
	return d
}

// H5: thousands of services in a new configuration are as many operations as
// there are objects, in a bounded number of requests, and one failure among them
// is one operation (seesaw 6c15ce2).
func TestManyServices(t *testing.T) {
	t.Parallel()
	const services, servers = 2000, 20000
	d, table := largeDaemon(t, services)
	pass := func(what string, want ipvstest.Requests) {
		t.Helper()
		table.ResetRequests()
		if _, err := d.owner.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, table.Requests()); diff != "" {
			t.Errorf("requests of %s (-want +got):\n%s", what, diff)
		}
	}
	one := func(k ipvs.OpKind) map[ipvs.OpKind]int { return map[ipvs.OpKind]int{k: 1} }
	// The first pass also looks for servers that left the configuration; a batch
	// has 5,000 operations at most.
	pass("the first pass", ipvstest.Requests{Reads: 2, Batches: 5, Writes: services + servers,
		Ops: map[ipvs.OpKind]int{ipvs.OpAddService: services, ipvs.OpAddDestination: servers}})
	pass("a quiet pass", ipvstest.Requests{Reads: 1})
	s := d.owner.fleet.Services[1711]
	d.owner.mem.health = healthWith(d.owner.mem.health, ipvs.DestinationKey{Service: s.ServiceKey, Address: s.Servers[3].Address}, true)
	pass("a pass with a failure", ipvstest.Requests{Reads: 1, Batches: 1, Writes: 1, Ops: one(ipvs.OpUpdateDestination)})
}

// healthWith returns what is known of the servers, with one that is up or down.
func healthWith(h fleet.Health, k ipvs.DestinationKey, down bool) fleet.Health {
	h = maps.Clone(h)
	h[k] = down
	return h
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
	health := map[bool]fleet.Health{false: healthWith(d.owner.mem.health, k, false), true: healthWith(d.owner.mem.health, k, true)}
	down := false
	for b.Loop() {
		down = !down
		d.owner.mem.health = health[down] // pending counts as what it was
		if r, err := d.owner.pass(context.Background()); err != nil || len(r.Changes) != 1 {
			b.Fatal(r.Changes, err)
		}
	}
}

// The first pass over an empty table.
func BenchmarkFirstPass(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		d, _ := largeDaemon(b, 5000)
		b.StartTimer()
		if _, err := d.owner.pass(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
