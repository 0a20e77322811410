package conntrack

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// The tests of this file pin facts of the kernel that the userspace engine is
// built on; doc.go lists them.

// When somebody begins to listen.
const (
	late      = iota // After the flow began.
	early            // Before.
	elsewhere        // Late, but somebody listens in another namespace.
)

// emits is the end of a flow of which want is heard.
type emits struct {
	name, sysctl, statements string
	listen                   int
	want                     []string
}

func (test *emits) run(t *testing.T) {
	l := newLab(t)
	l.echo()
	l.rules(ruleset(test.statements))
	l.lb.SetSysctl("net.netfilter.nf_conntrack_events", test.sysctl)
	var e *Events
	switch test.listen {
	case early:
		e = l.events(EventConfig{})
	case elsewhere:
		other, err := OpenEvents(EventConfig{NetNS: l.client.FD(), Groups: Updates})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
	}
	l.dial("udp", vip4+":80")
	if e == nil {
		e = l.events(EventConfig{})
	}
	if err := l.table().Delete(t.Context(), Filter{Mark: 0x100, MarkMask: 0xfffff00}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(test.want, kinds(l.drain(e))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestNetnsWhoEmits: which flows make events depends on
// net.netfilter.nf_conntrack_events and on who listened when they began.
func TestNetnsWhoEmits(t *testing.T) {
	for _, test := range []emits{
		{"0 and events set, late", "0", markThenEvents, late, []string{"destroy 100"}},
		{"0 and events set, early", "0", eventsThenMark, early, []string{"new 100", "destroy 100"}},
		{"0 alone", "0", "ct mark set 0x100", early, nil},
		{"1 alone", "1", "ct mark set 0x100", early, []string{"new 100", "update 100", "destroy 100"}},
		// The change of the mark is noted from the first packet on, and brings the
		// start of the flow with it.
		{"1 and events set", "1", markThenEvents, early, []string{"new 100", "destroy 100"}},
		{"2 alone, early", "2", "ct mark set 0x100", early, []string{"new 100", "update 100", "destroy 100"}},
		{"2 and events set, early", "2", markThenEvents, early, []string{"new 100", "destroy 100"}},
		{"2 and events set, elsewhere", "2", markThenEvents, elsewhere, []string{"destroy 100"}},
	} {
		t.Run(test.name, test.run)
	}
}

// TestKernelConntrackDeaf: the default of 2 makes no event of a flow that began
// while nobody on the whole machine listened, whatever is set. Only in the
// virtual machine nobody does.
func TestKernelConntrackDeaf(t *testing.T) {
	netnstest.Require(t, "ipvs")
	for _, test := range []emits{
		{"alone", "2", "ct mark set 0x100", late, nil},
		{"events set", "2", markThenEvents, late, nil},
	} {
		t.Run(test.name, test.run)
	}
}

// TestNetnsRecycled: a SYN with the tuple of a flow in TIME_WAIT makes the kernel
// delete the entry and tell of it before the packet goes on. So whoever gets the
// SYN from a queue finds the end of the flow before it on the event socket. Here
// the SYN does not even get behind the queue's place.
func TestNetnsRecycled(t *testing.T) {
	for _, vip := range []string{vip4, vip6} {
		t.Run(vip, func(t *testing.T) {
			l := newLab(t)
			l.closeFirst(map[string]string{vip4: server4, vip6: server6}[vip])
			l.rules(ruleset(markThenEvents))
			e, tab := l.events(EventConfig{}), l.table()
			addr := net.JoinHostPort(vip, "80")
			c := l.dial("tcp", addr)
			local := c.LocalAddr().(*net.TCPAddr)
			c.Read(make([]byte, 1))
			c.Close()
			l.await(e, func(got []Event) bool { return count(got, Update) == 1 })
			for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				if all := l.dump(tab, Filter{}); len(all) == 1 && all[0].TCPState == timeWait {
					break
				} else if time.Now().After(deadline) {
					t.Fatalf("want an entry in TIME_WAIT, got %s", list(all))
				}
			}
			l.rules(ruleset(markThenEvents) + `
table inet block {
	chain sched {
		type filter hook prerouting priority -140
		ct state new tcp flags syn drop
	}
}`)
			l.redial(local, addr)
			got := l.await(e, func(got []Event) bool { return len(got) > 0 })
			want := flow.New(protoTCP, local.AddrPort(), netip.MustParseAddrPort(addr))
			if len(got) != 1 || got[0].Kind != Destroy || got[0].Orig != want || got[0].TCPState != timeWait {
				t.Errorf("want the end of %v, got %s", want, list(got))
			}
			if left := l.dump(tab, Filter{}); len(left) != 0 {
				t.Errorf("want the old entry gone and no new one, got %s", list(left))
			}
		})
	}
}

const timeWait = 7 // TCP_CONNTRACK_TIME_WAIT

// closeFirst serves one TCP connection: it echoes what dial sends and closes, so
// that the client's port is free when the connection has ended.
func (l *lab) closeFirst(server string) {
	ln := l.server.Listen("tcp", net.JoinHostPort(server, "8080"))
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		b := make([]byte, 5)
		io.ReadFull(c, b)
		c.Write(b)
		c.Close()
	}()
}

// redial sends a SYN from a used port, which nobody answers.
func (l *lab) redial(local *net.TCPAddr, addr string) {
	l.t.Helper()
	err := l.client.Do(func() error {
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			d := net.Dialer{LocalAddr: local, Timeout: time.Second} // enough to send it
			c, err := d.Dial("tcp", addr)
			switch {
			case err == nil:
				c.Close()
				return errors.New("want no answer")
			case isTimeout(err):
				return nil
			case !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline):
				return err // Not sent at all.
			}
		}
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// TestNetnsHeldEvent: a change of the mark is told of when its packet leaves. If
// that is dropped behind the change, the mark is changed, and the event comes
// with the flow's next packet.
func TestNetnsHeldEvent(t *testing.T) {
	l := newLab(t)
	l.echo()
	l.rules(ruleset(markThenEvents))
	e, tab := l.events(EventConfig{}), l.table()
	c := l.dial("tcp", vip4+":80")
	const drop = `
table inet block {
	chain forward {
		type filter hook forward priority 0
		tcp flags & fin != 0 drop
	}
}`
	l.rules(ruleset(markThenEvents) + drop)
	c.(*net.TCPConn).CloseWrite()
	marked := func() bool {
		return len(l.dump(tab, Filter{Mark: 0x10000100, MarkMask: 0xfffffff0})) == 1
	}
	for deadline := time.Now().Add(patience); !marked(); {
		if time.Now().After(deadline) {
			t.Fatal("the mark never changed")
		}
		time.Sleep(time.Millisecond)
	}
	if got := l.drain(e); len(got) != 0 {
		t.Errorf("want no event yet, got %s", list(got))
	}
	l.rules(ruleset(markThenEvents)) // The retransmitted FIN goes through.
	got := l.await(e, func(got []Event) bool { return len(got) > 0 })
	if diff := cmp.Diff([]string{"update 10000100"}, kinds(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestNetnsExpired: the kernel looks for entries past their time once a minute,
// where nothing else makes it look; a dump does. It leaves them out and ends
// them, and their events tell when their time was over.
func TestNetnsExpired(t *testing.T) {
	l := newLab(t)
	l.rules(ruleset(markThenEvents))
	l.lb.SetSysctl("net.netfilter.nf_conntrack_timestamp", "1")
	l.lb.SetSysctl("net.netfilter.nf_conntrack_udp_timeout", "1")
	e, tab := l.events(EventConfig{}), l.table()
	const flows = 20
	l.flood(flows)
	for deadline := time.Now().Add(patience); len(l.dump(tab, Filter{})) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the entries never expired")
		}
	}
	// Who ended the last ones may be about to tell.
	got := l.await(e, func(got []Event) bool { return count(got, Destroy) >= flows })
	if len(got) != flows || count(got, Destroy) != flows {
		t.Errorf("want the end of %d flows, got %s", flows, list(got))
	}
	for _, ev := range got {
		if age := time.Duration(ev.Stop - ev.Start); age < 900*time.Millisecond || age > 1100*time.Millisecond {
			t.Errorf("%v: want an age of 1 s, got %v", ev.Orig, age)
		}
	}
}

// TestNetnsICMP: an ICMP flow is skipped; an ICMP error belongs to the flow that
// it is about and makes no event.
func TestNetnsICMP(t *testing.T) {
	l := newLab(t)
	l.rules(ruleset(eventsThenMark))
	l.lb.SetSysctl("net.netfilter.nf_conntrack_events", "1")
	e := l.events(EventConfig{})
	// Nobody listens at the server: it answers with an error.
	c, err := l.client.DialContext(t.Context(), "udp", vip4+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("want an error from the server")
	}
	if diff := cmp.Diff([]string{"new 100"}, kinds(l.drain(e))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	all := l.dump(l.table(), Filter{})
	if len(all) != 1 || all[0].Orig.Protocol != protoUDP || all[0].Status&StatusSeenReply != 0 {
		t.Errorf("want one UDP entry without a reply, got %s", list(all))
	}

	before := e.Stats()
	p, err := l.client.DialContext(t.Context(), "ip4:icmp", "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.SetDeadline(time.Now().Add(patience))
	echo := []byte{8, 0, 0xf7, 0xff - 7, 0, 7, 0, 0} // Echo request, id 7.
	if _, err := p.Write(echo); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Read(make([]byte, 1500)); err != nil {
		t.Fatal(err)
	}
	if got := l.drain(e); len(got) != 0 {
		t.Errorf("want nothing of ICMP, got %s", list(got))
	}
	if after := e.Stats(); after.Skipped == before.Skipped || after.Malformed != before.Malformed {
		t.Errorf("want skipped events, got %+v, then %+v", before, after)
	}
}

// TestNetnsDumpChurn: whatever comes and goes, a dump has every flow that was
// there all the time.
func TestNetnsDumpChurn(t *testing.T) {
	l := newLab(t)
	l.rules(ruleset(markThenEvents))
	tab := l.table()
	const steady = 300
	l.flood(steady)
	want := make(map[flow.Tuple]bool)
	for _, ev := range l.dump(tab, Filter{Mark: 0x100, MarkMask: 0xfffff00}) {
		want[ev.Orig] = true
	}
	if len(want) != steady {
		t.Fatalf("want %d flows, got %d", steady, len(want))
	}
	l.client.AddRoute("10.0.0.0/24", "192.0.2.1")
	ctx, cancel := context.WithCancel(t.Context())
	begun, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		begin := sync.OnceFunc(func() { close(begun) })
		for ctx.Err() == nil {
			l.send(client4, server4, 10)
			begin()
			if err := tab.Delete(t.Context(), Filter{Family: familyIPv4, MarkMask: 0xfffff00}); err != nil {
				t.Error(err)
			}
		}
	}()
	<-begun
	for i := range 20 {
		seen := make(map[flow.Tuple]bool)
		for _, ev := range l.dump(tab, Filter{}) {
			if want[ev.Orig] {
				seen[ev.Orig] = true
			}
		}
		if len(seen) != steady {
			t.Errorf("dump %d: want %d of the steady flows, got %d", i, steady, len(seen))
		}
	}
	cancel()
	<-done
}
