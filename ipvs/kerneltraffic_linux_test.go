package ipvs

import (
	"net/netip"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// TestKernelTraffic opens a connection through a service and finds it in every
// place that shows it.
func TestKernelTraffic(t *testing.T) {
	c, lb := kernelClient(t)
	ctx := t.Context()
	client, server := netnstest.New(t), netnstest.New(t)
	netnstest.Veth(lb, "client", client, "eth0")
	netnstest.Veth(lb, "server", server, "eth0")
	lb.AddAddr("client", "192.0.2.10/24")
	lb.AddAddr("client", "2001:db8::10/64")
	lb.AddAddr("server", "10.0.0.1/24")
	client.AddAddr("eth0", "192.0.2.1/24")
	client.AddAddr("eth0", "2001:db8::1/64")
	server.AddAddr("eth0", "10.0.0.2/24")
	server.AddRoute("0.0.0.0/0", "10.0.0.1")
	lb.SetSysctl("net.ipv4.ip_forward", "1")

	d := dest("10.0.0.2:8080", Masq)
	s := service(kernelV4)
	s.Flags, s.Persistence = FlagPersistent, Persistence{Timeout: time.Minute}
	mustApply(t, c, addService(s), addDest(kernelV4, d))
	ln := server.Listen("tcp", "10.0.0.2:8080")
	conn, err := client.DialContext(ctx, "tcp", "192.0.2.10:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}

	wantConns := Conns{Active: 1, Persistent: 1}
	table := mustTable(t, c)
	if got := table[0].Destinations[0].Conns; got != wantConns {
		t.Errorf("connections %+v, want %+v", got, wantConns)
	}
	counts, err := c.Counts(ctx)
	if err != nil || len(counts) != 1 || counts[0].Conns != (Conns{Active: 1}) {
		t.Errorf("counts %+v, %v; want one active", counts, err)
	}
	local := conn.LocalAddr().String()
	var found, templates int
	for e, err := range c.Connections(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Client == netip.MustParseAddrPort(local):
			found++
			if e.Protocol != TCP || e.Virtual != kernelV4.Address || e.Server != d.Address || e.State != "ESTABLISHED" ||
				e.Expires < 14*time.Minute || e.Expires > 15*time.Minute {
				t.Errorf("connection %+v", e)
			}
		case e.Client.Port() == 0:
			templates++
		}
	}
	if found != 1 || templates != 1 {
		t.Errorf("%d connections and %d templates, want one of each", found, templates)
	}

	// The estimator adds the counters up every two seconds.
	stats := func() (Stats, Stats) {
		table := mustTable(t, c)
		return table[0].Stats, table[0].Destinations[0].Stats
	}
	var svc, dst Stats
	for range 100 {
		if svc, dst = stats(); svc.PacketsIn >= 3 && svc.PacketsOut >= 2 && dst.BytesIn > 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if svc.Connections != 1 || dst.Connections != 1 || dst.PacketsIn < 3 || dst.PacketsOut < 2 ||
		dst.BytesIn < 5 || dst.BytesIn != svc.BytesIn || dst.BytesOut == 0 {
		t.Errorf("statistics of the service %+v, of the real server %+v", svc, dst)
	}
	for name, zero := range map[string]func() error{
		"Zero":    func() error { return c.Zero(ctx, kernelV4) },
		"ZeroAll": func() error { return c.ZeroAll(ctx) },
	} {
		if err := zero(); err != nil {
			t.Fatal(err)
		}
		if svc, dst := stats(); svc != (Stats{}) || dst != (Stats{}) {
			t.Errorf("after %s: service %+v, real server %+v", name, svc, dst)
		}
	}
	if got := mustTable(t, c)[0].Destinations[0].Conns; got != wantConns {
		t.Errorf("connections after Zero %+v, want %+v", got, wantConns)
	}

	// A weight of zero lets it live; so does an edit of everything else.
	if err := c.SetWeight(ctx, DestinationKey{kernelV4, d.Address}, 0); err != nil {
		t.Fatal(err)
	}
	s.Scheduler = "wlc"
	if err := c.UpdateService(ctx, s); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	// The counts come back with a service that is made again; the statistics not.
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	mustApply(t, c, addService(s), addDest(kernelV4, d))
	if got := mustTable(t, c)[0].Destinations[0]; got.Conns.Active != 1 || got.Stats != (Stats{}) {
		t.Errorf("after flush and re-add: %+v", got)
	}
}
