package userspace

import (
	"errors"
	"testing"

	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
)

// TestNetnsClearLeft clears an engine by its store, by its rules alone, and not at
// all while it runs or where there is nothing.
func TestNetnsClearLeft(t *testing.T) {
	l := newLab(t, 1)
	const events = "net.netfilter.nf_conntrack_events"
	l.balancer.SetSysctl(events, "2")
	want := func(when string, found bool, wantErr error) {
		t.Helper()
		got, err := ClearLeft(t.Context(), l.options())
		if got != found || !errors.Is(err, wantErr) {
			t.Errorf("%s: want %v, %v, got %v, %v", when, found, wantErr, got, err)
		}
		left, err := ruleset.Left(ruleset.Options{NetNS: l.balancer.FD()})
		if running := wantErr != nil; left != running || err != nil {
			t.Errorf("%s: rules are left: want %v, got %v, %v", when, running, left, err)
		}
	}
	want("before an engine", false, nil)
	l.open()
	_, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	want("beside an engine", true, ErrRunning)
	if got := l.balancer.Sysctl(events); got != "0" {
		t.Errorf("%s of an engine that runs: want 0, got %s", events, got)
	}
	l.stop()
	want("with the store", true, nil)
	if got := l.balancer.Sysctl(events); got != "2" {
		t.Errorf("%s: want the old 2, got %s", events, got)
	}
	if b, err := l.store.Load(); len(b) != 0 || err != nil {
		t.Errorf("store: want nothing, got %q, %v", b, err)
	}
	want("after that", false, nil)
	l.open()
	l.apply(ops...)
	l.stop()
	if err := l.store.Save(nil); err != nil {
		t.Fatal(err)
	}
	want("with rules alone", true, nil)
}
