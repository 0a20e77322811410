package ruleset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/conntrack"
)

// quiet is a Spec whose real servers with odd numbers are quiet.
func quiet() Spec {
	s := bothVersions()
	s.Servers[0].Quiet, s.Servers[2].Quiet = true, true
	for i := range s.Services {
		s.Services[i].Fallback = []Share{{s.Servers[i%2*2].Mark, 1}}
	}
	return s
}

// TestNetnsQuiet ends connections of a quiet real server: one that closed by FIN
// makes no event, all others do. Each is counted where it belongs.
func TestNetnsQuiet(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(quiet())
	l.lb.SetSysctl("net.netfilter.nf_conntrack_events", "0")
	ev, err := conntrack.OpenEvents(conntrack.EventConfig{NetNS: l.lb.FD(), Groups: conntrack.Updates | conntrack.Destroys})
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	inactive := l.rules.opts.Inactive()
	closed := func(e *conntrack.Event) bool { return e.Mark&inactive != 0 }
	ends := func(e conntrack.Event) (list []string) {
		l.lose(&e)
		// One that does tell is the mark of the end of what was before.
		u, _ := l.dial("udp", addresses[0])
		mark := l.flowOf(u.LocalAddr(), func(e *conntrack.Event) bool { return e.Orig.Protocol == protoUDP })
		l.lose(&mark)
		for end := time.Now().Add(waitTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
			done := false
			ev.Drain(func(e *conntrack.Event) {
				if done = done || e.ID == mark.ID; e.ID != mark.ID {
					list = append(list, fmt.Sprintf("%v %#x", e.Kind, e.Mark))
				}
			})
			if done {
				return list
			}
		}
		t.Fatal("no event of the end of a flow by UDP")
		return nil
	}
	for i, addr := range addresses {
		m := []uint32{mark1, mark3}[i]
		fin, _ := l.dial("tcp", addr)
		fin.(interface{ CloseWrite() error }).CloseWrite()
		if got := ends(l.flowOf(fin.LocalAddr(), closed)); got != nil {
			t.Errorf("%s, closed: want no events, got %s", addr, got)
		}
		cut, _ := l.dial("tcp", addr)
		reset(t, cut)
		if want, got := []string{fmt.Sprintf("destroy %#x", m|inactive)}, ends(l.flowOf(cut.LocalAddr(), closed)); !slices.Equal(want, got) {
			t.Errorf("%s, reset: want %s, got %s", addr, want, got)
		}
		open, _ := l.dial("tcp", addr)
		if want, got := []string{fmt.Sprintf("destroy %#x", m)}, ends(l.flowOf(open.LocalAddr(), every)); !slices.Equal(want, got) {
			t.Errorf("%s, open: want %s, got %s", addr, want, got)
		}
	}
	want := map[closedCount]bool{{mark1, 1, true}: true, {mark1, 1, false}: true, {mark3, 1, true}: true, {mark3, 1, false}: true,
		{mark2, 0, false}: true, {mark4, 0, false}: true}
	got := map[closedCount]bool{}
	if err := l.rules.Closed(func(m uint32, n uint64, quiet bool) { got[closedCount{m, n, quiet}] = true }); err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(want, got) {
		t.Errorf("counts (-want +got)\n%s", cmp.Diff(want, got))
	}

	// Who is not quiet any more tells of the end again, and keeps its other counter.
	l.apply(func() Spec { s := quiet(); s.Servers[0].Quiet = false; return s }())
	fin, _ := l.dial("tcp", addresses[0])
	fin.(interface{ CloseWrite() error }).CloseWrite()
	if want, got := []string{fmt.Sprintf("destroy %#x", mark1|inactive)}, ends(l.flowOf(fin.LocalAddr(), closed)); !slices.Equal(want, got) {
		t.Errorf("not quiet: want %s, got %s", want, got)
	}
	if got := l.closed(); got[mark1] != 2 {
		t.Errorf("not quiet: want 2 closed, got %d", got[mark1])
	}
	if ok, err := l.rules.Intact(t.Context()); !ok || err != nil {
		t.Errorf("intact: %v, %v", ok, err)
	}
}
