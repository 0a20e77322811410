package userspace

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/ipvs"
)

// TestEventsTwice has every event of a flow twice, as when one says what a dump
// has said before, and the end of an earlier flow after the begin of a later one.
func TestEventsTwice(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	tu := tupleTo(web, "198.51.100.1:1000")
	twice := func() {
		g.kernel.events = append(g.kernel.events, slices.Clone(g.kernel.events)...)
		g.pass(time.Second)
	}
	mark := g.engine.marks.of(g.engine.model.services[web.ServiceKey].index[netip.MustParseAddrPort(one)].id)
	g.kernel.begin(tu, mark, true)
	twice()
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0", two: "0/0/0"})
	g.kernel.reset(tu)
	twice()
	g.counts(web.ServiceKey, map[string]string{one: "0/1/0", two: "0/0/0"})
	g.kernel.end(tu)
	twice()
	g.counts(web.ServiceKey, map[string]string{one: "0/0/0", two: "0/0/0"})

	// The port again, with the other server: a late end of the first is no end.
	g.kernel.begin(tu, mark, true)
	g.pass(time.Second)
	g.kernel.end(tu)
	late := slices.Clone(g.kernel.events)
	g.pass(time.Second)
	if got := g.connect(tu, 2); got != two {
		t.Fatalf("want %s, got %s", two, got)
	}
	g.kernel.events = append(g.kernel.events, late...)
	g.pass(time.Second)
	g.counts(web.ServiceKey, map[string]string{one: "0/0/0", two: "1/0/0"})
}

// TestEventActiveAgain lets conntrack go on with the entry of a closed connection
// for the next one of the client's port, which never comes to the queue.
func TestEventActiveAgain(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	tu := tupleTo(web, "198.51.100.1:1000")
	g.connect(tu, 1)
	mark := g.engine.marks.of(g.engine.model.services[web.ServiceKey].index[netip.MustParseAddrPort(one)].id)
	g.kernel.begin(tu, mark, false)
	g.kernel.close(tu)
	g.pass(time.Second)
	g.counts(web.ServiceKey, map[string]string{one: "0/1/0"})
	g.kernel.reopen(tu)
	g.pass(time.Second)
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0"})
	// The same where a dump told that the first one closed.
	g.kernel.close(tu)
	g.resync()
	g.kernel.reopen(tu)
	g.pass(time.Second)
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0"})
	// And where nothing was read in between.
	g.kernel.close(tu)
	g.kernel.reopen(tu)
	g.kernel.close(tu)
	g.pass(time.Second)
	g.counts(web.ServiceKey, map[string]string{one: "0/1/0"})
	if n := g.engine.model.services[web.ServiceKey].traffic.now.connections; n != 4 {
		t.Errorf("connections: want 4, got %d", n)
	}
}

// TestDumpWithSameID has an event during a dump, of a flow whose id is that of
// another, which the dump has.
func TestDumpWithSameID(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	old, other := tupleTo(web, "198.51.100.1:1000"), tupleTo(web, "198.51.100.1:2000")
	g.connect(old, 1)
	g.kernel.close(old)
	g.connect(other, 1)
	g.kernel.entries[other].ID = g.kernel.entries[old].ID
	g.pass(time.Minute)
	g.kernel.during = func(*conntrack.Event) {
		g.kernel.end(other)
		g.engine.tickEvents()
	}
	g.resync()
	g.kernel.during = nil
	g.counts(web.ServiceKey, map[string]string{one: "0/1/0"})
	g.resync()
	g.counts(web.ServiceKey, map[string]string{one: "0/1/0"})
	if n := g.engine.model.services[web.ServiceKey].traffic.now.connections; n != 2 {
		t.Errorf("connections: want 2, got %d", n)
	}
}

// TestSCTPStates counts an association as active while it is established; an
// event that does not tell its state changes nothing.
func TestSCTPStates(t *testing.T) {
	g := newRig(t)
	svc := web
	svc.Protocol = ipvs.SCTP
	g.apply(addOp(svc), add(svc, one, 1))
	tu := tupleTo(svc, "198.51.100.1:1000")
	mark := g.engine.marks.of(g.engine.model.services[svc.ServiceKey].servers[0].id)
	for _, tt := range []struct {
		state uint8
		want  string
	}{{2, "0/1/0"}, {3, "0/1/0"}, {0, "0/1/0"}, {4, "1/0/0"}, {0, "1/0/0"}, {5, "0/1/0"}} {
		g.kernel.events = append(g.kernel.events, conntrack.Event{Kind: conntrack.Update, Orig: tu, Mark: mark, SCTPState: tt.state})
		g.pass(time.Second)
		g.counts(svc.ServiceKey, map[string]string{one: tt.want})
	}
}

// TestWarningsOfConntrack names what conntrack says of itself.
func TestWarningsOfConntrack(t *testing.T) {
	for want, stats := range map[string]conntrack.Stats{
		"new connections were dropped (1":       {Drop: 1},
		"were given up early (1":                {EarlyDrop: 1},
		"whose connection clashed with another": {InsertFailed: 1},
		"conntrack has 80 of 100 connections":   {Entries: 80, Max: 100},
	} {
		g := newRig(t)
		g.engine.kernelQueues = noQueues
		for _, s := range []conntrack.Stats{{Entries: 79, Max: 100}, stats} {
			if n := len(g.engine.Warnings()); n != 0 {
				t.Errorf("%q before", g.engine.Warnings())
			}
			g.kernel.stats = s
			if err := g.engine.look(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if w := g.engine.Warnings(); len(w) != 1 || !strings.Contains(w[0], want) {
			t.Errorf("want %q, got %q", want, w)
		}
	}
}

// TestUntranslated counts connections of a real server at the address of its
// service, which connection tracking has no need to translate.
func TestUntranslated(t *testing.T) {
	g := newRig(t)
	own := web.Address.String()
	g.apply(addOp(web), add(web, own, 1), add(web, one, 1))
	here, there := tupleTo(web, "198.51.100.1:1000"), tupleTo(web, "198.51.100.1:1001")
	if got := g.connect(there, 1); got != one {
		t.Fatalf("want %s, got %s", one, got)
	}
	if got := g.connect(here, 2); got != own {
		t.Fatalf("want %s, got %s", own, got)
	}
	g.kernel.entries[here].Status &^= conntrack.StatusDstNAT
	want := map[string]string{own: "1/0/0", one: "1/0/0"}
	g.pass(10 * time.Second)
	g.resync()
	g.counts(web.ServiceKey, want)
	g.start() // the next engine knows of it, too
	g.counts(web.ServiceKey, want)
	g.kernel.end(here)
	g.kernel.lost = true // no event of that
	g.kernel.events = nil
	g.pass(10 * time.Second)
	g.resync()
	g.counts(web.ServiceKey, map[string]string{own: "0/0/0", one: "1/0/0"})
}
