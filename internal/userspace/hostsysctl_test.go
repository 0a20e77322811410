package userspace

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/nfqueue"
	"github.com/lbd-project/lbd/ipvs"
)

// TestHostSettings changes what it must, each after the store knows what was
// there, and gives back what nobody else has changed since.
func TestHostSettings(t *testing.T) {
	g := newRig(t)
	want := func(when string, w fakeHost) {
		t.Helper()
		if d := diff(w, g.host); d != "" {
			t.Errorf("%s (-want +got):\n%s", when, d)
		}
	}
	want("at the start", fakeHost{ctEvents: "0", ctTimestamp: "0"})
	svc := web
	svc.Scheduler = "least-time"
	g.apply(addOp(svc))
	want("with a scheduler that needs times", fakeHost{ctEvents: "0", ctTimestamp: "1"})

	// The next engine does not take the last one's values for the host's.
	g.start()
	g.host[ctEvents] = "1" // somebody else
	g.start()
	want("of the next engine", fakeHost{ctEvents: "0", ctTimestamp: "1"})
	g.host[ctTimestamp] = "7"
	if err := g.engine.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("given back", fakeHost{ctEvents: "1", ctTimestamp: "7"})

	// A store of which nothing else is of use still says what to give back.
	g.host[ctEvents] = "2"
	g.start()
	g.store.data = bytes.Replace(g.store.data, []byte(`"mark_mask":`), []byte(`"mark_mask":1`), 1)
	g.start()
	if err := g.engine.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("after a useless store", fakeHost{ctEvents: "2", ctTimestamp: "7"})

	// So does that of an older engine, which set more.
	g.host[ctAcct] = "1"
	g.start()
	g.engine.hostSysctls[ctAcct] = savedSysctl{"0", "1"}
	if err := g.engine.save(g.engine.current()); err != nil {
		t.Fatal(err)
	}
	g.start()
	if err := g.engine.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("of an older engine", fakeHost{ctEvents: "2", ctAcct: "0", ctTimestamp: "7"})

	// Whoever listens to all events keeps them.
	g.store.data = nil
	maps.Copy(g.host, fakeHost{ctEvents: "2", ctTimestamp: "0"})
	e := g.engine
	e.allEvents = true
	change, err := e.noteHost(e.wantHost(&state{}))
	if d := diff(map[string]string{ctEvents: "1"}, change); d != "" || err != nil {
		t.Errorf("with another listener (-want +got):\n%s%v", d, err)
	}
}

// TestHostSettingsKept has the store refuse: nothing is changed that it does not
// know of.
func TestHostSettingsKept(t *testing.T) {
	g := newRig(t)
	svc := web
	svc.Scheduler = "least-time"
	g.store.fail = errTest
	g.engine.opt.Store = g.store
	if err := g.engine.Apply(t.Context(), []ipvs.Op{addOp(svc)}); !errors.Is(err, errTest) {
		t.Errorf("want %v, got %v", errTest, err)
	}
	if g.host[ctTimestamp] != "0" {
		t.Errorf("%s was changed", ctTimestamp)
	}
	g.store.fail = nil
	delete(g.host, ctTimestamp) // an old kernel
	g.apply(addOp(svc))
	delete(g.host, ctEvents)
	clear(g.engine.hostDone)
	if err := g.engine.Apply(t.Context(), []ipvs.Op{addOp(web6)}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("want %v, got %v", fs.ErrNotExist, err)
	}
}

// TestHostSettingsChanged has somebody change settings under the engine, one that
// it had changed and one that was right: both are noticed and written again, and
// Clear gives back what was there before lbd.
func TestHostSettingsChanged(t *testing.T) {
	g := newRig(t)
	maps.Copy(g.host, fakeHost{ctEvents: "2", ctTimestamp: "1"})
	g.store.data = nil
	g.start()
	e := g.engine
	svc := web
	svc.Scheduler = "least-time"
	g.apply(addOp(svc))
	e.kernelQueues = func() ([]nfqueue.KernelQueue, error) { return nil, nil }
	care := func() {
		t.Helper()
		g.pass(time.Second)
		if err := errors.Join(e.look(t.Context()), e.maintain(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	care()
	if got := e.Warnings(); len(got) != 0 || e.Repairs() != 0 {
		t.Errorf("before any change: want no warning, got %q, %d repairs", got, e.Repairs())
	}
	ours := maps.Clone(g.host)
	maps.Copy(g.host, fakeHost{ctTimestamp: "0", ctEvents: "1"})
	care()
	if d := diff(ours, g.host); d != "" {
		t.Errorf("after somebody's change (-want +got):\n%s", d)
	}
	if got := strings.Join(e.Warnings(), "; "); !strings.Contains(got, "nf_conntrack_events") || !strings.Contains(got, "(2, the last 0s ago)") {
		t.Errorf("want a warning of 2 changes, got %q", got)
	}
	for _, want := range []string{"sysctl=net.netfilter.nf_conntrack_timestamp value=1 found=0", "sysctl=net.netfilter.nf_conntrack_events value=0 found=1"} {
		if !strings.Contains(g.log.String(), want) {
			t.Errorf("log: want %q, got\n%s", want, g.log)
		}
	}
	care()
	if e.Repairs() != 2 {
		t.Errorf("repairs: want 2, got %d", e.Repairs())
	}
	if err := e.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := diff(fakeHost{ctEvents: "2", ctTimestamp: "1"}, g.host); d != "" {
		t.Errorf("given back (-want +got):\n%s", d)
	}
}
