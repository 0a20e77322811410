package userspace

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/nfqueue"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
)

// routedTo makes an operation of a real server one by direct routing.
func routedTo(op ipvs.Op) ipvs.Op {
	op.Destination.Forward = ipvs.Route
	return op
}

// tunnelTo makes an operation of a real server one by a tunnel.
func tunnelTo(op ipvs.Op) ipvs.Op {
	op.Destination.Forward = ipvs.Tunnel
	return op
}

// lastPacket is the first packet of a client that closes.
func lastPacket(tu flow.Tuple) []byte {
	b := firstPacket(tu, 99)
	b[20+13] = 0x11 // FIN, ACK
	return b
}

// TestRouted follows a connection by direct routing: its first packet, its first
// to close, and what the rules say of it in between.
func TestRouted(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), routedTo(add(web, one, 1)), routedTo(add(web, two, 1)))
	if s := g.rules.spec; s.Services[0].Forward != ipvs.Route || s.Servers[0].Service != s.Services[0].ID {
		t.Errorf("rules: %+v", s)
	}
	begin := func(port int) flow.Tuple {
		tu := tupleTo(web, fmt.Sprintf("198.51.100.1:%d", port))
		g.rules.flows = append(g.rules.flows, ruleset.Flow{Tuple: tu, Mark: g.queue(tu, 1)})
		return tu
	}
	a := begin(1000) // two
	begin(1001)      // one
	lost := tupleTo(web, "198.51.100.1:1002")
	g.queue(lost, 1) // two, and it never came through
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0", two: "2/0/0"})
	g.pass(5 * time.Second)
	g.resync()
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0", two: "1/0/0"})

	for range 2 { // and a second that does not count
		if v := g.answer(nfqueue.Packet{Payload: lastPacket(a)}); v != pass {
			t.Errorf("verdict on a packet that closes: %+v", v)
		}
	}
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0", two: "0/1/0"})
	g.resync() // the rules' map may be behind
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0", two: "0/1/0"})
	g.rules.flows[0].Inactive = true
	g.rules.flows[1].Inactive = true // the engine was not there
	g.resync()
	g.counts(web.ServiceKey, map[string]string{one: "0/1/0", two: "0/1/0"})

	// One of the rules alone, and the next engine.
	g.rules.flows = append(g.rules.flows,
		ruleset.Flow{Tuple: lost, Mark: 0x100}, ruleset.Flow{Tuple: tupleTo(web, "198.51.100.9:1"), Mark: 0x7700})
	g.start()
	g.counts(web.ServiceKey, map[string]string{one: "1/1/0", two: "0/1/0"})
	var states []string
	for c, err := range g.engine.Connections(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, fmt.Sprintf("%v > %v %s", c.Client, c.Server, c.State))
	}
	if d := diff([]string{
		"198.51.100.1:1000 > 10.0.0.2:80 FIN_WAIT", "198.51.100.1:1001 > 10.0.0.1:80 FIN_WAIT",
		"198.51.100.1:1002 > 10.0.0.1:80 ESTABLISHED",
	}, states); d != "" {
		t.Errorf("connections (-want +got):\n%s", d)
	}

	// Expired, and deleted with expire_nodest_conn.
	g.rules.flows = g.rules.flows[1:]
	g.pass(5 * time.Second)
	g.resync()
	g.counts(web.ServiceKey, map[string]string{one: "1/1/0", two: "0/0/0"})
	if _, err := g.engine.SetSysctl(sysctlNodest, "1"); err != nil {
		t.Fatal(err)
	}
	g.apply(remove(web, one))
	if n := len(g.rules.flows); n != 1 {
		t.Errorf("flows in the rules: want the foreign one, got %v", g.rules.flows)
	}
}

// TestRoutedMix has real servers of both kinds in one service: the rules hear of
// it, also of those that are gone.
func TestRoutedMix(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	rules := func(forward ipvs.ForwardMethod, mixed bool) {
		t.Helper()
		if s := g.rules.spec.Services[0]; s.Forward != forward || s.Mixed != mixed {
			t.Errorf("rules: want %v, mixed %t, got %v, %t", forward, mixed, s.Forward, s.Mixed)
		}
	}
	rules(ipvs.Masq, false)
	g.apply(routedTo(update(web, one, 1)))
	rules(ipvs.Route, true)
	tu := tupleTo(web, "198.51.100.1:1000")
	g.queue(tu, 1) // two
	g.counts(web.ServiceKey, map[string]string{one: "0/0/0", two: "1/0/0"})
	g.apply(remove(web, two))
	rules(ipvs.Route, true) // its connections are in connection tracking
	g.pass(5 * time.Second)
	g.resync()
	if err := g.engine.maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	rules(ipvs.Route, false)
	g.apply(remove(web, one))
	rules(ipvs.Route, false)
}

// TestTunnel passes tunnels on to the rules, and refuses what the host cannot do.
func TestTunnel(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), tunnelTo(add(web, one, 1)), tunnelTo(add(web, "[fd00::1]:80", 1)))
	for _, s := range g.rules.spec.Servers {
		if s.Forward != ipvs.Tunnel || s.Service != g.rules.spec.Services[0].ID {
			t.Errorf("rules: want a tunnel of the service, got %+v", s)
		}
	}
	refused := func(op ipvs.Op, why string) {
		t.Helper()
		err := g.engine.Apply(t.Context(), []ipvs.Op{op})
		if !errors.Is(err, syscall.EOPNOTSUPP) || !strings.Contains(err.Error(), why) {
			t.Errorf("want it refused for %q, got %v", why, err)
		}
		if err := g.engine.Supports(op); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("Supports: want %q, got %v", why, err)
		}
	}
	gre := tunnelTo(add(web, two, 1))
	gre.Destination.Tunnel.Type = ipvs.TunnelGRE
	refused(gre, "gre")
	local := add(web, two, 1)
	local.Destination.Forward = ipvs.Local
	refused(local, "Local")
	g.rules.abilities.Tunnel = errTest
	refused(tunnelTo(add(web, two, 1)), errTest.Error())
	g.apply(routedTo(add(web, two, 1)))
	errs := g.engine.Check([]ipvs.TableEntry{{ServiceStatus: ipvs.ServiceStatus{Service: web}, Destinations: []ipvs.DestinationStatus{
		{Destination: add(web, one, 1).Destination},
		{Destination: routedTo(add(web, two, 1)).Destination},
		{Destination: tunnelTo(add(web, three, 1)).Destination},
	}}})
	if len(errs) != 1 || !errors.Is(errs[0], errTest) || !strings.Contains(errs[0].Error(), three) {
		t.Errorf("Check: want the tunnel, got %v", errs)
	}
}
