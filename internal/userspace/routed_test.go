package userspace

import (
	"errors"
	"fmt"
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
		if v := g.reader.answer(&nfqueue.Packet{Payload: lastPacket(a)}); v != pass {
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

// TestRoutedMix may change all real servers of a service together, and not one
// of them.
func TestRoutedMix(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	forward := func() (list []ipvs.ForwardMethod) {
		for _, s := range g.engine.model.services[web.ServiceKey].servers {
			list = append(list, s.Forward)
		}
		return list
	}
	refused := func(want []int, ops ...ipvs.Op) {
		t.Helper()
		var batch *ipvs.BatchError
		err := g.engine.Apply(t.Context(), ops)
		if !errors.As(err, &batch) || !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Fatalf("want a refusal, got %v", err)
		}
		var got []int
		for _, f := range batch.Failed {
			got = append(got, f.Index)
		}
		if d := diff(want, got); d != "" {
			t.Errorf("refused (-want +got):\n%s%v", d, err)
		}
	}
	refused([]int{0}, routedTo(update(web, one, 1)))
	refused([]int{1}, update(web, two, 5), routedTo(add(web, three, 1)))
	if g.engine.Supports(routedTo(update(web, one, 1))) == nil || g.engine.Supports(routedTo(add(web, three, 1))) == nil {
		t.Error("Supports lets a mixture pass")
	}
	if d := diff([]ipvs.ForwardMethod{ipvs.Masq, ipvs.Masq}, forward()); d != "" {
		t.Errorf("forwarding (-want +got):\n%s", d)
	}
	g.apply(routedTo(update(web, one, 1)), routedTo(update(web, two, 1)))
	g.apply(remove(web, one), add(web, one, 2), update(web, two, 2))
	if d := diff([]ipvs.ForwardMethod{ipvs.Masq, ipvs.Masq}, forward()); d != "" {
		t.Errorf("forwarding (-want +got):\n%s", d)
	}
	refused([]int{2}, addOp(web6), routedTo(add(web6, "[2001:db8:1::1]:80", 1)), add(web6, "[2001:db8:1::2]:80", 1))

	g.rules.abilities.Route = errTest
	refused([]int{0, 1}, routedTo(update(web, one, 1)), routedTo(update(web, two, 1)))
	errs := g.engine.Check([]ipvs.TableEntry{{ServiceStatus: ipvs.ServiceStatus{Service: web}, Destinations: []ipvs.DestinationStatus{
		{Destination: add(web, one, 1).Destination}, {Destination: routedTo(add(web, two, 1)).Destination},
	}}})
	if len(errs) != 2 || !errors.Is(errs[0], errMixed) || !errors.Is(errs[1], errTest) {
		t.Errorf("Check: %v", errs)
	}
}
