package ruleset

import (
	"slices"
	"testing"
)

// TestNetnsDeadOfBothFamilies has a mark among the dead before the second
// family's table is made, which must be able to lose it again.
func TestNetnsDeadOfBothFamilies(t *testing.T) {
	r := openEmpty(t, Options{FailOpen: true})
	all := bothVersions()
	first := Spec{Services: all.Services[:1], Servers: slices.Clone(all.Servers), Dead: []uint32{all.Servers[0].Mark}}
	first.Servers = slices.DeleteFunc(first.Servers, func(s Server) bool {
		return s.Address.Addr().Is4() != first.Services[0].Key.Address.Addr().Is4()
	})
	for i, s := range []Spec{first, func() Spec { s := all; s.Dead = first.Dead; return s }(), all} {
		if err := r.Apply(t.Context(), s); err != nil {
			t.Fatalf("Apply %d: %v", i, err)
		}
	}
	if ok, err := r.Intact(t.Context()); !ok || err != nil {
		t.Errorf("intact: %v, %v", ok, err)
	}
}

// TestNetnsDeadUnanswered drops the datagrams of a flow whose real server is
// deleted, also where that never answered, so that the flow is still new to
// connection tracking.
func TestNetnsDeadUnanswered(t *testing.T) {
	for _, addr := range addresses {
		l := newLab(t, Options{FailOpen: true})
		s := bothVersions()
		l.apply(s)
		l.mute(true)
		nft(t, l.rules, `table inet other { counter came {}; counter sent {}
			chain before { type filter hook prerouting priority -400; meta l4proto udp counter name came; }
			chain after { type filter hook forward priority 0; meta l4proto udp counter name sent; }
		}`)
		c, err := l.client.DialContext(t.Context(), "udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write([]byte("?"))
		e := l.flowOf(c.LocalAddr(), every)
		send := func(came, sent int) {
			t.Helper()
			c.Write([]byte("?"))
			l.waitCounter(l.lb, "came", came)
			l.waitCounter(l.lb, "sent", sent)
		}
		send(2, 2)
		s.Dead = []uint32{e.Mark}
		l.apply(s)
		send(3, 2)
		s.Dead = nil
		l.apply(s)
		send(4, 3)
	}
}
