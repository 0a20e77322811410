package userspace

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"testing"

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
	want("at the start", fakeHost{ctEvents: "0", ctAcct: "1", ctTimestamp: "0"})
	svc := web
	svc.Scheduler = "least-time"
	g.apply(addOp(svc))
	want("with a scheduler that needs times", fakeHost{ctEvents: "0", ctAcct: "1", ctTimestamp: "1"})

	// The next engine does not take the last one's values for the host's.
	g.start()
	g.host[ctAcct] = "0" // somebody else
	g.start()
	want("of the next engine", fakeHost{ctEvents: "0", ctAcct: "1", ctTimestamp: "1"})
	g.host[ctTimestamp] = "7"
	if err := g.engine.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("given back", fakeHost{ctEvents: "2", ctAcct: "0", ctTimestamp: "7"})

	// A store of which nothing else is of use still says what to give back.
	g.host[ctAcct] = "0"
	g.start()
	g.store.data = bytes.Replace(g.store.data, []byte(`"mark_mask":`), []byte(`"mark_mask":1`), 1)
	g.start()
	if err := g.engine.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("after a useless store", fakeHost{ctEvents: "2", ctAcct: "0", ctTimestamp: "7"})

	// Whoever listens to all events keeps them.
	g.store.data = nil
	maps.Copy(g.host, fakeHost{ctEvents: "2", ctAcct: "1", ctTimestamp: "0"})
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
	delete(g.host, ctAcct)
	clear(g.engine.hostDone)
	if err := g.engine.Apply(t.Context(), []ipvs.Op{addOp(web6)}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("want %v, got %v", fs.ErrNotExist, err)
	}
}
