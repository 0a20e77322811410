package userspace

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
)

// persist returns a persistent service with two servers; its scheduler would
// alternate.
func persist(g *rig, timeout time.Duration, mask ipvs.Netmask) ipvs.Service {
	s := tcpService("192.0.2.20:80")
	s.Scheduler, s.Flags = "rr", ipvs.FlagPersistent
	s.Persistence = ipvs.Persistence{Timeout: timeout, Netmask: mask}
	g.apply(addOp(s), add(s, one, 1), add(s, two, 1))
	return s
}

func (g *rig) connectAs(s ipvs.Service, client string, port int) string {
	return g.connect(tupleTo(s, fmt.Sprintf("%s:%d", client, port)), uint32(port))
}

// TestTemplate keeps clients at their servers, for as long as the kernel would.
func TestTemplate(t *testing.T) {
	g := newRig(t)
	s := persist(g, 5*time.Minute, ipvs.Netmask{})
	for port := range 3 {
		if a, b := g.connectAs(s, "198.51.100.1", 1000+port), g.connectAs(s, "198.51.100.2", 1000+port); a != two || b != one {
			t.Errorf("connections of both clients went to %s and %s, want %s and %s", a, b, two, one)
		}
	}
	g.counts(s.ServiceKey, map[string]string{one: "3/0/1", two: "3/0/1"})
	// The timer starts anew with each connection, and a template outlives its time
	// while its connections do.
	g.pass(4 * time.Minute)
	g.connectAs(s, "198.51.100.1", 1003)
	for port := range 3 {
		g.kernel.end(tupleTo(s, fmt.Sprintf("198.51.100.2:%d", 1000+port)))
	}
	g.pass(2 * time.Minute)
	g.engine.expireTemplates()
	g.counts(s.ServiceKey, map[string]string{one: "0/0/0", two: "4/0/1"})
	g.pass(5 * time.Minute)
	g.engine.expireTemplates()
	g.counts(s.ServiceKey, map[string]string{one: "0/0/0", two: "4/0/1"})
	for port := range 4 {
		g.kernel.end(tupleTo(s, fmt.Sprintf("198.51.100.1:%d", 1000+port)))
	}
	g.pass(30 * time.Second)
	g.engine.expireTemplates()
	g.counts(s.ServiceKey, map[string]string{one: "0/0/0", two: "0/0/1"})
	g.pass(31 * time.Second)
	g.engine.expireTemplates()
	g.counts(s.ServiceKey, map[string]string{one: "0/0/0", two: "0/0/0"})
	// At its end a client is scheduled afresh.
	if got := g.connectAs(s, "198.51.100.1", 2000); got != two {
		t.Errorf("want %s, got %s", two, got)
	}
}

// TestTemplateLate uses a template whose time is over before anybody looked.
func TestTemplateLate(t *testing.T) {
	g := newRig(t)
	s := persist(g, time.Minute, ipvs.Netmask{})
	g.connectAs(s, "198.51.100.1", 1000) // two
	g.kernel.end(tupleTo(s, "198.51.100.1:1000"))
	g.pass(time.Minute)
	if got := g.connectAs(s, "198.51.100.1", 1001); got != one {
		t.Errorf("want %s, got %s", one, got)
	}
	g.engine.expireTemplates()
	g.counts(s.ServiceKey, map[string]string{one: "1/0/1", two: "0/0/0"})
}

func TestTemplateNetmask(t *testing.T) {
	for _, test := range []struct {
		mask         ipvs.Netmask
		a, b         string
		sameTemplate bool
	}{
		{ipvs.NetmaskV4(netip.MustParseAddr("255.255.255.0")), "198.51.100.1", "198.51.100.200", true},
		{ipvs.NetmaskV4(netip.MustParseAddr("255.255.255.0")), "198.51.100.1", "198.51.101.1", false},
		{ipvs.NetmaskV4(netip.MustParseAddr("0.0.0.0")), "198.51.100.1", "203.0.113.1", true},
		{ipvs.NetmaskV4(netip.MustParseAddr("255.0.0.1")), "198.51.100.1", "198.2.3.255", true},
		{ipvs.NetmaskV4(netip.MustParseAddr("255.0.0.1")), "198.51.100.1", "198.2.3.254", false},
		{ipvs.NetmaskV6(64), "2001:db8::1", "2001:db8::ffff:1", true},
		{ipvs.NetmaskV6(64), "2001:db8::1", "2001:db8:0:1::1", false},
		{ipvs.Netmask{}, "2001:db8::1", "2001:db8::2", false},
	} {
		s := &service{}
		s.Persistence.Netmask = test.mask
		a, b := s.client(netip.MustParseAddr(test.a)), s.client(netip.MustParseAddr(test.b))
		if (a == b) != test.sameTemplate {
			t.Errorf("%v: %s and %s become %v and %v", test.mask, test.a, test.b, a, b)
		}
	}
}

// TestTemplateQuiesced is weight 0 with and without expire_quiescent_template.
func TestTemplateQuiesced(t *testing.T) {
	g := newRig(t)
	s := persist(g, time.Minute, ipvs.Netmask{})
	g.connectAs(s, "198.51.100.1", 1000) // two
	g.apply(update(s, two, 0))
	if got := g.connectAs(s, "198.51.100.1", 1001); got != two {
		t.Errorf("want %s, got %s", two, got)
	}
	if got := g.connectAs(s, "198.51.100.2", 1000); got != one {
		t.Errorf("another client: want %s, got %s", one, got)
	}
	mark := g.engine.marks.of(g.engine.model.services[s.ServiceKey].index[netip.MustParseAddrPort(two)].id)
	service := g.engine.model.services[s.ServiceKey].id
	g.rules.templates = []ruleset.Template{{Service: service, Mark: mark, Client: netip.MustParseAddr("198.51.100.1"), Expires: time.Minute}}
	if _, err := g.engine.SetSysctl(sysctlQuiescent, "1"); err != nil {
		t.Fatal(err)
	}
	if got := g.connectAs(s, "198.51.100.1", 1002); got != one {
		t.Errorf("with expire_quiescent_template: want %s, got %s", one, got)
	}
	if err := g.engine.maintain(t.Context()); err != nil || len(g.rules.templates) != 0 {
		t.Errorf("templates in the rules: %v, %v", g.rules.templates, err)
	}
}

// TestTemplateDeleted deletes the server of a template, and brings it back.
func TestTemplateDeleted(t *testing.T) {
	g := newRig(t)
	s := persist(g, time.Minute, ipvs.Netmask{})
	g.connectAs(s, "198.51.100.1", 1000) // two
	g.apply(remove(s, two))
	g.apply(add(s, two, 1))
	g.counts(s.ServiceKey, map[string]string{one: "0/0/0", two: "1/0/1"})
	if got := g.connectAs(s, "198.51.100.1", 1001); got != two {
		t.Errorf("back in time: want %s, got %s", two, got)
	}
	g.apply(remove(s, two))
	if got := g.connectAs(s, "198.51.100.1", 1002); got != one {
		t.Errorf("deleted: want %s, got %s", one, got)
	}
	g.apply(add(s, two, 1))
	if got := g.connectAs(s, "198.51.100.1", 1003); got != one {
		t.Errorf("back too late: want %s, got %s", one, got)
	}

	if _, err := g.engine.SetSysctl(sysctlNodest, "1"); err != nil {
		t.Fatal(err)
	}
	g.apply(remove(s, one), remove(s, two))
	g.pass(time.Second)
	if err := g.engine.maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.apply(add(s, one, 1), add(s, two, 1))
	g.counts(s.ServiceKey, map[string]string{one: "0/0/0", two: "0/0/0"})
}

// TestTemplateRestart takes in the templates that the rules have, and the flows
// of them.
func TestTemplateRestart(t *testing.T) {
	g := newRig(t)
	s := persist(g, 10*time.Minute, ipvs.NetmaskV4(netip.MustParseAddr("255.255.255.0")))
	g.connectAs(s, "198.51.100.7", 1000) // two
	svc := g.engine.model.services[s.ServiceKey]
	g.rules.templates = []ruleset.Template{
		{Service: svc.id, Client: netip.MustParseAddr("198.51.100.0"), Mark: g.engine.marks.of(svc.index[netip.MustParseAddrPort(two)].id), Expires: time.Minute},
		{Service: svc.id, Client: netip.MustParseAddr("203.0.113.0"), Mark: g.engine.marks.of(svc.index[netip.MustParseAddrPort(two)].id), Expires: time.Minute},
		{Service: svc.id, Client: netip.MustParseAddr("203.0.114.0"), Mark: 0xff00, Expires: time.Minute},
		{Service: svc.id + 1, Client: netip.MustParseAddr("203.0.115.0"), Mark: 0x100, Expires: time.Minute},
	}
	g.start()
	g.counts(s.ServiceKey, map[string]string{one: "0/0/0", two: "1/0/2"})
	for _, client := range []string{"198.51.100.9", "203.0.113.5"} {
		if got := g.connectAs(s, client, 3000); got != two {
			t.Errorf("%s: want %s, got %s", client, two, got)
		}
	}
	// A flow that the rules balanced proves a template.
	g.kernel.begin(tupleTo(s, "203.0.116.1:1"), g.rules.templates[0].Mark, true)
	g.pass(time.Second)
	g.counts(s.ServiceKey, map[string]string{one: "0/0/0", two: "4/0/3"})
}

// TestTemplateShared has two services that keep clients apart.
func TestTemplateShared(t *testing.T) {
	g := newRig(t)
	mark := ipvs.Service{ServiceKey: ipvs.MarkService(ipvs.IPv4, 9), Scheduler: "rr", Flags: ipvs.FlagPersistent,
		Persistence: ipvs.Persistence{Timeout: time.Minute}}
	any := tcpService("192.0.2.30:0")
	any.Scheduler, any.Flags, any.Persistence = "rr", ipvs.FlagPersistent, ipvs.Persistence{Timeout: time.Minute}
	g.apply(addOp(mark), add(mark, "10.0.0.1:0", 1), add(mark, "10.0.0.2:0", 1))
	g.apply(addOp(any), add(any, "10.0.0.1:0", 1), add(any, "10.0.0.2:0", 1))
	// All ports of a client go to one server.
	first := g.connectAs(tcpService("192.0.2.30:80"), "198.51.100.1", 1000)
	for port := 81; port < 85; port++ {
		if got := g.connectAs(tcpService(fmt.Sprintf("192.0.2.30:%d", port)), "198.51.100.1", 1000); got != first {
			t.Errorf("port %d: want %s, got %s", port, first, got)
		}
	}
	if got := g.connectAs(tcpService("192.0.2.30:80"), "198.51.100.2", 1000); got == first {
		t.Errorf("another client went to %s too", got)
	}
	g.counts(any.ServiceKey, map[string]string{"10.0.0.1:0": "1/0/1", "10.0.0.2:0": "5/0/1"})
	g.counts(mark.ServiceKey, map[string]string{"10.0.0.1:0": "0/0/0", "10.0.0.2:0": "0/0/0"})
}

// TestTemplateOfDeadService deletes a persistent service while a connection lives
// that outlasts this engine. The rules' templates of it go before its marks are
// another's.
func TestTemplateOfDeadService(t *testing.T) {
	g := newRig(t)
	s := persist(g, time.Minute, ipvs.Netmask{})
	g.connectAs(s, "198.51.100.1", 1000)
	client := netip.MustParseAddr("198.51.100.1")
	g.apply(deleteOp(s))
	g.rules.templates = []ruleset.Template{{Service: 1, Client: client, Mark: 1 << 8, Expires: time.Hour}}
	g.start()
	g.kernel.end(tupleTo(s, "198.51.100.1:1000"))
	for range 2 {
		g.pass(5 * time.Second)
		g.resync()
		if err := g.engine.maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(g.engine.model.dead); n != 0 || len(g.rules.templates) != 0 {
		t.Errorf("%d deleted real servers are kept, templates in the rules: %v", n, g.rules.templates)
	}
}
