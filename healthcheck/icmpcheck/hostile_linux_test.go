package icmpcheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/checktest"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// responder answers pings in the place of the kernel, which a rule keeps from it.
type responder struct {
	v4, v6 string
	pings  atomic.Int64
}

// The addresses of responders.
const responder4, responder6 = "10.0.1.3", "fd00:1::3"

// asked is a request that a responder got.
type asked struct {
	icmp.Echo
	v6   bool
	from netip.Addr
}

// newResponder has the lab's host answer pings of 10.0.1.3 and fd00:1::3 by what
// reply makes of a request: messages, which are sent one after the other.
func newResponder(t testing.TB, l lab, reply func(a asked) []icmp.Message) *responder {
	t.Helper()
	r := &responder{v4: responder4, v6: responder6}
	l.host.AddAddr("eth0", r.v4+"/24")
	l.host.AddAddr("eth0", r.v6+"/64")
	// The kernel's own replies carry no mark.
	l.rules(t, l.host, "output",
		"ip saddr 10.0.1.3 icmp type echo-reply meta mark != 0x7 drop", "ip6 saddr fd00:1::3 icmpv6 type echo-reply meta mark != 0x7 drop")
	r.listen(t, l.host, r.v4, false, reply)
	r.listen(t, l.host, r.v6, true, reply)
	return r
}

func (r *responder) listen(t testing.TB, ns *netnstest.NS, ip string, v6 bool, reply func(asked) []icmp.Message) {
	t.Helper()
	network, proto, request := "ip4:icmp", 1, icmp.Type(ipv4.ICMPTypeEcho)
	if v6 {
		network, proto, request = "ip6:ipv6-icmp", 58, ipv6.ICMPTypeEchoRequest
	}
	pc := ns.ListenPacket(network, ip)
	raw, err := pc.(*net.IPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, 7) }); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1<<16)
		for {
			n, from, err := pc.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			m, err := icmp.ParseMessage(proto, b[:n])
			if err != nil || m.Type != request {
				continue
			}
			r.pings.Add(1)
			for _, answer := range reply(asked{*m.Body.(*icmp.Echo), v6, netip.MustParseAddr(from.String())}) {
				wire, err := answer.Marshal(nil)
				if err != nil {
					t.Error(err)
				}
				if _, err := pc.WriteTo(wire, from); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Logf("reply: %v", err)
				}
			}
		}
	}()
	t.Cleanup(func() { pc.Close(); <-done })
}

// reply returns the right reply.
func (a asked) reply() (icmp.Message, *icmp.Echo) {
	f := family4
	if a.v6 {
		f = family6
	}
	e := icmp.Echo{ID: a.ID, Seq: a.Seq, Data: slices.Clone(a.Data)}
	return icmp.Message{Type: f.reply, Body: &e}, &e
}

// newSlow has a host that answers 50 ms late.
func newSlow(t testing.TB, l lab) *responder {
	return newResponder(t, l, func(a asked) []icmp.Message {
		time.Sleep(50 * time.Millisecond)
		m, _ := a.reply()
		return []icmp.Message{m}
	})
}

// TestNetnsOtherReplies has a host whose replies are no replies to the request,
// alone and before the right one.
func TestNetnsOtherReplies(t *testing.T) {
	l := newLab(t)
	var change atomic.Value // func(m *icmp.Message, e *icmp.Echo)
	var right atomic.Bool
	r := newResponder(t, l, func(a asked) []icmp.Message {
		good, _ := a.reply()
		wrong, e := a.reply()
		change.Load().(func(*icmp.Message, *icmp.Echo))(&wrong, e)
		if right.Load() {
			return []icmp.Message{wrong, wrong, good}
		}
		return []icmp.Message{wrong, wrong}
	})
	tests := []struct {
		name   string
		seen   bool // the kernel shows it to a raw socket
		change func(m *icmp.Message, e *icmp.Echo)
	}{
		{"id", false, func(m *icmp.Message, e *icmp.Echo) { e.ID ^= 1 }},
		{"sequence", true, func(m *icmp.Message, e *icmp.Echo) { e.Seq ^= 1 }},
		{"payload", true, func(m *icmp.Message, e *icmp.Echo) { e.Data[0] ^= 1 }},
		{"end of the payload", true, func(m *icmp.Message, e *icmp.Echo) { e.Data[len(e.Data)-1] ^= 1 }},
		{"cut", true, func(m *icmp.Message, e *icmp.Echo) { e.Data = e.Data[:len(e.Data)-1] }},
		{"longer", true, func(m *icmp.Message, e *icmp.Echo) { e.Data = append(e.Data, 1) }},
		{"code", true, func(m *icmp.Message, e *icmp.Echo) { m.Code = 1 }},
	}
	for _, to := range []string{r.v4, r.v6} {
		for _, tt := range tests {
			change.Store(tt.change)
			right.Store(true)
			if _, err := l.check(t, long, Check{}, to); err != nil {
				t.Errorf("%s: %s, then the reply: %v", to, tt.name, err)
			}
			right.Store(false)
			want := fmt.Sprintf("ping %s: no answer in time: context deadline exceeded", to)
			if tt.seen {
				want += " (ignored 2 other packets)"
			}
			var text string
			var pings int64
			// A busy machine may let the time be over before the replies have come.
			for timeout, early := short, true; early && timeout < long; timeout *= 2 {
				before := r.pings.Load()
				_, err := l.check(t, timeout, Check{}, to)
				pings, text = r.pings.Load()-before, checktest.Text(err)
				early = text != want && errors.Is(err, context.DeadlineExceeded)
			}
			if text != want || pings != 1 {
				t.Fatalf("%s, %s: want %q after one ping, got %q after %d", to, tt.name, want, text, pings)
			}
		}
	}
}

// TestNetnsFlood has a host answer with far more than was asked for.
func TestNetnsFlood(t *testing.T) {
	l := newLab(t)
	r := newResponder(t, l, func(a asked) []icmp.Message {
		wrong, e := a.reply()
		e.Seq ^= 1
		many := make([]icmp.Message, 20_000)
		for i := range many {
			many[i] = wrong
		}
		return many
	})
	for _, to := range []string{r.v4, r.v6} {
		_, err := l.check(t, long, Check{}, to)
		want := fmt.Sprintf("ping %s: too many packets that are no reply (ignored 1000 other packets)", to)
		if err == nil || err.Error() != want {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// unreachable returns an error that quotes a request to an address of the lab.
func (a asked) unreachable(t testing.TB, to string, change func(e *icmp.Echo)) icmp.Message {
	f, kind := family4, icmp.Type(ipv4.ICMPTypeDestinationUnreachable)
	if a.v6 {
		f, kind = family6, ipv6.ICMPTypeDestinationUnreachable
	}
	_, e := a.reply()
	change(e)
	inner, err := (&icmp.Message{Type: f.request, Body: e}).Marshal(nil)
	if err != nil {
		t.Error(err)
	}
	dst := netip.MustParseAddr(to)
	header := []byte{0x45, 0, 0, byte(20 + len(inner)), 0, 0, 0, 0, 63, 1, 0, 0}
	if a.v6 {
		header = []byte{0x60, 0, 0, 0, 0, byte(len(inner)), 58, 63}
	}
	header = append(append(header, a.from.AsSlice()...), dst.AsSlice()...)
	return icmp.Message{Type: kind, Code: 1, Body: &icmp.DstUnreach{Data: append(header, inner...)}}
}

// TestNetnsForeignErrors has a host send ICMP errors that are about another
// request to the same target, before its reply; they change nothing. One that
// is about the request ends the check.
func TestNetnsForeignErrors(t *testing.T) {
	l := newLab(t)
	var change atomic.Value // func(e *icmp.Echo)
	r := newResponder(t, l, func(a asked) []icmp.Message {
		to := responder4
		if a.v6 {
			to = responder6
		}
		bad := a.unreachable(t, to, change.Load().(func(e *icmp.Echo)))
		good, _ := a.reply()
		return []icmp.Message{bad, bad, good}
	})
	for to, text := range map[string]string{r.v4: "host unreachable", r.v6: "administratively prohibited"} {
		for name, f := range map[string]func(e *icmp.Echo){
			"id":       func(e *icmp.Echo) { e.ID ^= 1 },
			"sequence": func(e *icmp.Echo) { e.Seq ^= 1 },
			"payload":  func(e *icmp.Echo) { e.Data[0] ^= 1 },
		} {
			change.Store(f)
			if _, err := l.check(t, long, Check{}, to); err != nil {
				t.Errorf("%s, error of another %s: %v", to, name, err)
			}
		}
		change.Store(func(*icmp.Echo) {})
		want := fmt.Sprintf("ping %s: %s, says %[1]s", to, text)
		if _, err := l.check(t, long, Check{}, to); err == nil || err.Error() != want {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
