package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/flow"
)

// TestNetnsEvents follows a flow from its first packet to its end, by protocol
// and family, and by the order of the two statements.
func TestNetnsEvents(t *testing.T) {
	for _, test := range []struct {
		network, vip, statements string
		want                     []string
	}{
		{"tcp", vip4, markThenEvents, []string{"update 10000100", "destroy 10000100"}},
		{"tcp", vip4, eventsThenMark, []string{"new 100", "update 10000100", "destroy 10000100"}},
		{"tcp", vip6, markThenEvents, []string{"update 10000100", "destroy 10000100"}},
		{"tcp", vip6, eventsThenMark, []string{"new 100", "update 10000100", "destroy 10000100"}},
		{"udp", vip4, markThenEvents, []string{"destroy 100"}},
		{"udp", vip4, eventsThenMark, []string{"new 100", "destroy 100"}},
		{"udp", vip6, eventsThenMark, []string{"new 100", "destroy 100"}},
	} {
		t.Run(fmt.Sprint(test.network, test.vip, len(test.want)), func(t *testing.T) {
			l := newLab(t)
			l.echo()
			l.rules(ruleset(test.statements))
			l.lb.SetSysctl("net.netfilter.nf_conntrack_timestamp", "1")
			e, tab := l.events(EventConfig{}), l.table()
			addr := netip.AddrPortFrom(netip.MustParseAddr(test.vip), 80)
			c := l.dial(test.network, addr.String())
			local := netip.MustParseAddrPort(c.LocalAddr().String())
			c.Close()
			all := []Event{}
			if test.network == "tcp" {
				all = l.await(e, func(got []Event) bool { return count(got, Update) > 0 })
			}
			if err := tab.Delete(t.Context(), Filter{Mark: 0x100, MarkMask: 0xfff00}); err != nil {
				t.Fatal(err)
			}
			all = append(all, l.await(e, func(got []Event) bool { return count(got, Destroy) > 0 })...)
			if diff := cmp.Diff(test.want, kinds(all)); diff != "" {
				t.Fatalf("events (-want +got)\n%s", diff)
			}

			protocol, server := uint8(protoTCP), netip.MustParseAddrPort("[2001:db8:1::2]:8080")
			if test.network == "udp" {
				protocol = protoUDP
			}
			if addr.Addr().Is4() {
				server = netip.MustParseAddrPort("10.0.0.2:8080")
			}
			last := all[len(all)-1]
			want := Event{
				Kind: Destroy, Orig: flow.New(protocol, local, addr), Reply: flow.New(protocol, server, local),
				Mark: last.Mark, Counted: true,
			}
			got := last
			got.ID, got.Status, got.TCPState, got.Timeout = 0, 0, 0, 0
			got.Start, got.Stop, got.At = 0, 0, 0
			got.PacketsOrig, got.BytesOrig, got.PacketsReply, got.BytesReply = 0, 0, 0, 0
			if diff := cmp.Diff(want, got, compareTuples); diff != "" {
				t.Errorf("destroy (-want +got)\n%s", diff)
			}
			const status = StatusSeenReply | StatusConfirmed | StatusDstNAT
			if last.Status&status != status || last.ID == 0 {
				t.Errorf("want an id and status %#x, got %#x and %#x", status, last.ID, last.Status)
			}
			if last.PacketsOrig == 0 || last.BytesOrig < 5*last.PacketsOrig || last.PacketsReply == 0 || last.BytesReply == 0 {
				t.Errorf("counters %d packets %d bytes, %d packets %d bytes back", last.PacketsOrig, last.BytesOrig, last.PacketsReply, last.BytesReply)
			}
			if age := last.Stop - last.Start; age <= 0 || age > int64(patience) || time.Since(time.Unix(0, last.Stop)).Abs() > patience {
				t.Errorf("started at %d, stopped at %d", last.Start, last.Stop)
			}
			for _, ev := range all {
				if ev.ID != last.ID || ev.Orig != last.Orig {
					t.Errorf("an event of another flow: %s", list([]Event{ev}))
				}
			}
		})
	}
}

// TestNetnsForeignFlows: flows that are not ours make no event, whatever becomes
// of them.
func TestNetnsForeignFlows(t *testing.T) {
	l := newLab(t)
	l.echo()
	l.rules(ruleset(markThenEvents))
	e, tab := l.events(EventConfig{}), l.table()
	for _, addr := range []string{server4 + ":8080", "[" + server6 + "]:8080"} {
		l.client.AddRoute(map[bool]string{true: "10.0.0.0/24", false: "2001:db8:1::/64"}[addr[0] == '1'],
			map[bool]string{true: "192.0.2.1", false: "2001:db8::1"}[addr[0] == '1'])
		for _, network := range []string{"tcp", "udp"} {
			c := l.dial(network, addr)
			orig := flow.New(map[string]uint8{"tcp": protoTCP, "udp": protoUDP}[network],
				netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(addr))
			c.Close()
			if err := tab.DeleteFlow(t.Context(), orig, 0); err != nil {
				t.Error(err)
			}
		}
	}
	if got := l.drain(e); len(got) != 0 {
		t.Errorf("want no event, got %s", list(got))
	}
	// The socket is not simply deaf.
	l.dial("tcp", vip4+":80").Close()
	l.await(e, func(got []Event) bool { return count(got, Update) == 1 })
}

// TestNetnsOverrun overruns a small buffer, and finds the truth again by a dump.
func TestNetnsOverrun(t *testing.T) {
	l := newLab(t)
	l.echo()
	l.rules(ruleset(eventsThenMark))
	e, tab := l.events(EventConfig{ReadBuffer: 4 << 10}), l.table()
	const flows = 50
	for range flows {
		l.dial("udp", vip4+":80")
	}
	var seen, overruns int
	for range 3 {
		n, err := e.Drain(func(*Event) { seen++ })
		switch {
		case errors.Is(err, ErrOverrun):
			overruns++
			if n != seen {
				t.Errorf("the overrun came before the end of the queue: %d of %d", n, seen)
			}
		case err != nil:
			t.Fatal(err)
		}
	}
	if overruns != 1 || seen == 0 || seen >= flows {
		t.Errorf("want some of %d events and one overrun, got %d and %d", flows, seen, overruns)
	}
	if st := e.Stats(); st.Overruns == 0 || st.Events != uint64(seen) {
		t.Errorf("want %d events and an overrun, got %+v", seen, st)
	}
	if got := l.dump(tab, Filter{Mark: 0x100, MarkMask: 0xfffff00}); len(got) != flows {
		t.Errorf("resync: want %d flows, got %d", flows, len(got))
	}
	// And it hears again.
	l.dial("udp", vip4+":80")
	l.await(e, func(got []Event) bool { return count(got, New) == 1 })
}

// TestNetnsDrainLimit: a call is bounded, and what is left comes next.
func TestNetnsDrainLimit(t *testing.T) {
	l := newLab(t)
	l.rules(ruleset(eventsThenMark))
	e := l.events(EventConfig{})
	if want := DefaultReadBuffer; e.ReadBuffer() != want {
		t.Errorf("want a buffer of %d bytes, got %d", want, e.ReadBuffer())
	}
	const flows = DrainLimit + 100
	l.flood(flows)
	var seen int
	handle := func(*Event) { seen++ }
	n, err := e.Drain(handle)
	if n != DrainLimit || seen != DrainLimit || err != nil {
		t.Errorf("want %d, got %d, %d events, %v", DrainLimit, n, seen, err)
	}
	n, err = e.Drain(handle)
	if n != flows-DrainLimit || seen != flows || err != nil {
		t.Errorf("want the other %d, got %d, %d events, %v", flows-DrainLimit, n, seen, err)
	}
	if n, err := e.Drain(handle); n != 0 || err != nil {
		t.Errorf("want nothing, got %d, %v", n, err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.Drain(handle); err == nil {
		t.Error("want an error of a closed socket")
	}
}

// TestNetnsDeleteEvents: what another socket of ours deletes is told of as well.
func TestNetnsDeleteEvents(t *testing.T) {
	l := newLab(t)
	l.rules(ruleset(markThenEvents))
	e, tab := l.events(EventConfig{Groups: Destroys}), l.table()
	l.flood(20)
	all := l.dump(tab, Filter{})
	if err := tab.DeleteFlow(t.Context(), all[0].Orig, all[0].ID); err != nil {
		t.Error(err)
	}
	if got := l.drain(e); len(got) != 1 || got[0].Orig != all[0].Orig || got[0].ID != all[0].ID {
		t.Errorf("want an event of %s, got %s", list(all[:1]), list(got))
	}
	if err := tab.Delete(t.Context(), Filter{Mark: 0x100, MarkMask: 0xfffff00}); err != nil {
		t.Error(err)
	}
	if got := l.drain(e); count(got, Destroy) != 19 {
		t.Errorf("want 19 events, got %s", list(got))
	}
}

func TestOpenEventsNoGroups(t *testing.T) {
	if e, err := OpenEvents(EventConfig{NetNS: -1}); err == nil {
		t.Errorf("want an error, got %v", e)
	}
}

func (l *lab) events(c EventConfig) *Events {
	l.t.Helper()
	c.NetNS = l.lb.FD()
	if c.Groups == 0 {
		c.Groups = News | Updates | Destroys
	}
	e, err := OpenEvents(c)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { e.Close() })
	return e
}

// drain reads all that is there, and fails on an error.
func (l *lab) drain(e *Events) (got []Event) {
	l.t.Helper()
	for {
		n, err := e.Drain(func(ev *Event) { got = append(got, *ev) })
		if err != nil {
			l.t.Fatal(err)
		}
		if n < DrainLimit {
			return got
		}
	}
}

// await reads until enough of what was read.
func (l *lab) await(e *Events, enough func([]Event) bool) (got []Event) {
	l.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		got = append(got, l.drain(e)...)
		if enough(got) {
			return got
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("waited for events, got %s", list(got))
		}
		unix.Poll([]unix.PollFd{{Fd: int32(e.FD()), Events: unix.POLLIN}}, 100)
	}
}

// kinds lists what happened, "update 10000100" for each.
func kinds(events []Event) (out []string) {
	for _, ev := range events {
		out = append(out, fmt.Sprintf("%v %x", ev.Kind, ev.Mark))
	}
	return out
}

// count counts the events of a kind.
func count(events []Event, k Kind) (n int) {
	for _, ev := range events {
		if ev.Kind == k {
			n++
		}
	}
	return n
}
