package ruleset

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/conntrack"
)

// signalled is bothVersions where the services of ids want signals.
func signalled(ids ...uint32) Spec {
	s := bothVersions()
	// TCP and UDP share servers, but each service has marks of its own.
	for i := range 4 {
		v := s.Servers[i]
		v.Mark += 4 << 8
		s.Servers = append(s.Servers, v)
	}
	for i := range s.Services {
		v := &s.Services[i]
		v.Signals = slices.Contains(ids, v.ID)
		v.Fallback = slices.Clone(v.Fallback)
		for j := range v.Fallback {
			if v.ID > 2 {
				v.Fallback[j].Mark += 4 << 8
			}
			s.Servers[v.Fallback[j].Mark>>8-1].Service = v.ID
		}
	}
	return s
}

// TestNetnsSignals sees the bit of requests without a response, and only for
// services that want it.
func TestNetnsSignals(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(signalled(1, 4))
	busy := func(e *conntrack.Event) bool { return e.Mark&l.rules.opts.Busy() != 0 }
	idle := func(e *conntrack.Event) bool { return e.Mark&l.rules.opts.Busy() == 0 }

	c, _ := l.dial("tcp", addresses[0])
	l.flowOf(c.LocalAddr(), idle)
	l.mute(true)
	c.Write([]byte("request"))
	l.flowOf(c.LocalAddr(), busy)
	l.mute(false)
	if _, err := io.ReadFull(c, make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	l.flowOf(c.LocalAddr(), idle)
	l.mute(true)
	c.Write([]byte("request"))
	l.flowOf(c.LocalAddr(), busy)
	reset(t, c)
	l.flowOf(c.LocalAddr(), func(e *conntrack.Event) bool { return idle(e) && e.Mark&l.rules.opts.Inactive() != 0 })
	l.mute(false)

	u, err := l.client.DialContext(t.Context(), "udp", addresses[1])
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	u.SetDeadline(time.Now().Add(waitTime))
	for range 2 {
		l.mute(true)
		u.Write([]byte("?"))
		l.flowOf(u.LocalAddr(), busy)
		l.mute(false)
		u.Write([]byte("?"))
		if _, err := u.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		l.flowOf(u.LocalAddr(), idle)
	}

	// The others do not.
	l.mute(true)
	for _, f := range []struct{ network, addr string }{{"tcp", addresses[1]}, {"udp", addresses[0]}} {
		l.mute(f.network == "udp")
		c, err := l.client.DialContext(t.Context(), f.network, f.addr)
		if err != nil {
			t.Fatal(err)
		}
		l.mute(true)
		c.Write([]byte("request"))
		l.flowOf(c.LocalAddr(), every)
		time.Sleep(20 * time.Millisecond)
		if e := l.flowOf(c.LocalAddr(), every); busy(&e) {
			t.Errorf("%s %s: busy without signals", f.network, f.addr)
		}
		c.Close()
	}
}

// mute keeps servers from seeing data.
func (l *lab) mute(on bool) {
	l.t.Helper()
	for _, s := range l.servers {
		if list := nft(l.t, l.rulesOf(s), "list", "tables"); strings.Contains(list, "mute") {
			nft(l.t, l.rulesOf(s), "delete table inet mute")
		}
		if on {
			nft(l.t, l.rulesOf(s), `table inet mute { chain in {
				type filter hook prerouting priority -300
				tcp flags psh drop
				meta l4proto udp drop
				}
			}`)
		}
	}
}

// TestNetnsSignalsEvents: a request is two events, also on a connection that was
// there when its service began to want signals.
func TestNetnsSignalsEvents(t *testing.T) {
	t.Run("new", func(t *testing.T) { signalsEvents(t, signalled(1)) })
	t.Run("old", func(t *testing.T) { signalsEvents(t, signalled()) })
}

func signalsEvents(t *testing.T, before Spec) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(before)
	l.lb.SetSysctl("net.netfilter.nf_conntrack_events", "0")
	c, _ := l.dial("tcp", addresses[0])
	l.apply(signalled(1))
	e := l.flowOf(c.LocalAddr(), every)
	ev, err := conntrack.OpenEvents(conntrack.EventConfig{NetNS: l.lb.FD(), Groups: conntrack.Updates})
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	var want, got []string
	for range 3 {
		if err := echo(c, waitTime); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("%#x", e.Mark|l.rules.opts.Busy()), fmt.Sprintf("%#x", e.Mark))
	}
	for end := time.Now().Add(waitTime); time.Now().Before(end) && len(got) < len(want); time.Sleep(time.Millisecond) {
		ev.Drain(func(e *conntrack.Event) { got = append(got, fmt.Sprintf("%#x", e.Mark)) })
	}
	if !cmp.Equal(want, got) {
		t.Errorf("(-want +got)\n%s", cmp.Diff(want, got))
	}
}
