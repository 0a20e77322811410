package ruleset

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/packet"
	"github.com/lbd-project/lbd/ipvs"
)

var addresses = []string{"192.0.2.1:80", "[2001:db8::1]:80"}

// reset closes a connection with a RST.
func reset(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestNetnsInactive sees the bit set once a side closes, and not before.
func TestNetnsInactive(t *testing.T) {
	eachWay(t, Options{}, bothVersions(), func(t *testing.T, l *lab) {
		inactive := l.rules.opts.Inactive()
		for _, addr := range addresses {
			c, _ := l.dial("tcp", addr)
			c.Write([]byte("more"))
			if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			if e := l.flowOf(c.LocalAddr(), every); e.Mark&inactive != 0 || e.Mark&DefaultMask == 0 {
				t.Errorf("%s open: mark %#x", addr, e.Mark)
			}
			c.(*net.TCPConn).CloseWrite()
			l.flowOf(c.LocalAddr(), func(e *conntrack.Event) bool { return e.Mark&inactive != 0 })

			c, _ = l.dial("tcp", addr)
			reset(t, c)
			l.flowOf(c.LocalAddr(), func(e *conntrack.Event) bool { return e.Mark&inactive != 0 })

			u, _ := l.dial("udp", addr)
			if e := l.flowOf(u.LocalAddr(), every); e.Mark&^DefaultMask != 0 {
				t.Errorf("%s udp: mark %#x", addr, e.Mark)
			}
		}
	})
}

// TestNetnsActiveAgain sees Inactive cleared and Reuse flipped by the SYN of the next
// connection from the client's port, where connection tracking keeps the entry,
// and hears of it though the first one was quiet.
func TestNetnsActiveAgain(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(bothVersions())
	l.lb.SetSysctl("net.netfilter.nf_conntrack_events", "0")
	inactive, reuse := l.rules.opts.Inactive(), l.rules.opts.Reuse()
	c, _ := l.dial("tcp", "192.0.2.1:80")
	e := l.flowOf(c.LocalAddr(), every)
	ev, err := conntrack.OpenEvents(conntrack.EventConfig{NetNS: l.lb.FD(), Groups: conntrack.Updates})
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	for _, want := range []uint32{e.Mark ^ reuse, e.Mark} {
		nft(t, l.rules, fmt.Sprintf(`table ip other { chain c { type filter hook prerouting priority -199; ct mark set ct mark or %d ct event set 0; }; }`, inactive))
		c.Write([]byte("more"))
		l.flowOf(c.LocalAddr(), func(now *conntrack.Event) bool { return now.Mark == want^reuse|inactive })
		// Nobody answers the SYN, so that it is the last packet. A packet that is
		// dropped tells of nothing, so it gets as far as the servers.
		nft(t, l.rules, `delete table ip other`)
		for _, s := range l.servers {
			nft(t, l.rulesOf(s), `table ip mute { chain f { type filter hook prerouting priority -300; tcp flags & (syn|ack) == syn drop; }; }`)
		}
		ev.Drain(func(*conntrack.Event) {})
		syn := synOf(&e.Orig)
		err := l.client.Do(func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendto(fd, syn, 0, &unix.SockaddrInet4{Addr: e.Orig.Dst().As4()})
		})
		if err != nil {
			t.Fatal(err)
		}
		l.flowOf(c.LocalAddr(), func(now *conntrack.Event) bool { return now.ID == e.ID && now.Mark == want })
		var got []uint32
		for end := time.Now().Add(waitTime); time.Now().Before(end) && len(got) == 0; time.Sleep(time.Millisecond) {
			ev.Drain(func(e *conntrack.Event) { got = append(got, e.Mark) })
		}
		if !slices.Equal(got, []uint32{want}) {
			t.Errorf("events: want mark %#x, got %#x", want, got)
		}
	}
}

// synOf returns the segment that begins an IPv4 flow, with options of TCP.
func synOf(tu *flow.Tuple, options ...byte) []byte { return segmentOf(tu, 1, tcpSYN, options...) }

// segmentOf is a segment without data.
func segmentOf(tu *flow.Tuple, seq uint32, flags byte, options ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, tu.SrcPort)
	b = binary.BigEndian.AppendUint16(b, tu.DstPort)
	b = binary.BigEndian.AppendUint32(b, seq)
	b = append(b, 0, 0, 0, 0, byte(5+len(options)/4)<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	b = append(b, options...)
	src, dst := tu.Src().As4(), tu.Dst().As4()
	sum := uint32(unix.IPPROTO_TCP) + uint32(len(b))
	for _, part := range [][]byte{src[:], dst[:], b} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[16:], ^uint16(sum))
	return b
}

// TestNetnsInactiveByServer has the server close: its answers leave by the output
// hook where it runs on the balancer.
func TestNetnsInactiveByServer(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	s := bothVersions()
	s.Servers[0].Address = netip.MustParseAddrPort("192.0.2.1:8080")
	s.Services[0].Fallback = []Share{{mark1, 1}}
	l.apply(s)
	ln := l.lb.Listen("tcp", "192.0.2.1:8080")
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "L")
			c.Close()
		}
	}()
	c, name := l.dial("tcp", "192.0.2.1:80")
	if name != "L" {
		t.Fatalf("want the local server, got %q", name)
	}
	l.flowOf(c.LocalAddr(), func(e *conntrack.Event) bool { return e.Mark == mark1|l.rules.opts.Inactive() })
}

// TestNetnsResetBeforeEstablished: a client's RST that answers SYN and ACK changes
// nothing, as in IPVS.
func TestNetnsResetBeforeEstablished(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(bothVersions())
	// The client's ACK never arrives, so that the connection stays half open.
	nft(t, l.rulesOf(l.client), `table ip mute { chain out {
		type filter hook output priority 0
		tcp flags & (syn|rst|ack) == ack drop
		}
	}`)
	c, err := l.client.DialContext(t.Context(), "tcp", "192.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	e := l.flowOf(c.LocalAddr(), func(e *conntrack.Event) bool { return e.Status&conntrack.StatusSeenReply != 0 })
	if e.Status&conntrack.StatusAssured != 0 {
		t.Fatalf("the connection is established: %+v", e)
	}
	reset(t, c)
	e = l.flowOf(c.LocalAddr(), func(e *conntrack.Event) bool { return e.TCPState == tcpClose })
	if e.Mark&l.rules.opts.Inactive() != 0 {
		t.Errorf("mark %#x after a RST before the connection was there", e.Mark)
	}
}

// tcpClose is TCP_CONNTRACK_CLOSE of
// include/uapi/linux/netfilter/nf_conntrack_tcp.h.
const tcpClose = 8

// TestNetnsEvents listens as the daemon does: a flow that it decided tells of its
// end alone, one of the fallback of its start as well. That it closes makes an
// event only where something else needs events of marks.
func TestNetnsEvents(t *testing.T) {
	all := bothVersions()
	all.AllEvents = true
	stateless := bothVersions()
	stateless.Services[2].OnePacket = true
	for _, test := range []struct {
		name   string
		spec   Spec
		closes bool
	}{
		{"masquerading", bothVersions(), false},
		{"signals elsewhere", signalled(2), false},
		{"signals", signalled(1), true},
		{"stateless services", stateless, true},
		{"all", all, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachWay(t, Options{}, test.spec, func(t *testing.T, l *lab) { l.events(test.closes, test.spec.AllEvents) })
		})
	}
}

// events opens and closes a connection, deletes its entry, and compares the
// events.
func (l *lab) events(closes, all bool) {
	t := l.t
	t.Helper()
	l.lb.SetSysctl("net.netfilter.nf_conntrack_events", map[bool]string{false: "0", true: "1"}[all])
	ev, err := conntrack.OpenEvents(conntrack.EventConfig{NetNS: l.lb.FD(),
		Groups: conntrack.News | conntrack.Updates | conntrack.Destroys})
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	c, name := l.dial("tcp", "192.0.2.1:80")
	mark := map[string]uint32{"0": mark1, "1": mark2}[name]
	closed := mark | l.rules.opts.Inactive()
	l.flowOf(c.LocalAddr(), every)
	c.Close()
	l.flowOf(c.LocalAddr(), func(e *conntrack.Event) bool { return e.Mark == closed })
	table, err := conntrack.OpenTable(l.lb.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if err := table.Delete(t.Context(), conntrack.Filter{Mark: mark, MarkMask: DefaultMask}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for end := time.Now().Add(waitTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		ev.Drain(func(e *conntrack.Event) {
			if e.Mark&DefaultMask != 0 || !all { // with all, others' flows tell of themselves
				got = append(got, fmt.Sprintf("%v %#x", e.Kind, e.Mark&^l.rules.opts.Busy()))
			}
		})
		if len(got) > 0 && strings.HasPrefix(got[len(got)-1], "destroy") {
			break
		}
	}
	var want []string
	if strings.Contains(t.Name(), "fallback") {
		want = append(want, fmt.Sprintf("new %#x", mark))
	}
	if closes {
		want = append(want, fmt.Sprintf("update %#x", closed))
	}
	want = append(want, fmt.Sprintf("destroy %#x", closed))
	if all {
		// Every change of state: the first and the last say enough.
		want = []string{fmt.Sprintf("new %#x", mark), want[len(want)-1]}
		got = []string{got[0], got[len(got)-1]}
	}
	if !cmp.Equal(want, got) {
		t.Errorf("(-want +got)\n%s", cmp.Diff(want, got))
	}
}

// TestNetnsDead drops what clients of a deleted real server send, and lets its
// answers pass.
func TestNetnsDead(t *testing.T) {
	for _, addr := range addresses {
		l := newLab(t, Options{FailOpen: true})
		s := bothVersions()
		l.apply(s)
		c, name := l.dial("tcp", addr)
		l.flowOf(c.LocalAddr(), every)
		var other net.Conn
		for {
			var n string
			if other, n = l.dial("tcp", addr); n != name {
				break
			}
		}
		e := l.flowOf(c.LocalAddr(), every)
		s.Dead = []uint32{e.Mark}
		l.apply(s)
		if err := echo(c, 300*time.Millisecond); !isTimeout(err) {
			t.Errorf("%s: want what the client sends dropped, got %v", addr, err)
		}
		if err := echo(other, waitTime); err != nil {
			t.Errorf("%s: connection to the other server: %v", addr, err)
		}
		// The client's FIN does not arrive, but the server's answer to the
		// retransmitted data, were there one, would. Reviving shows it.
		s.Dead = nil
		l.apply(s)
		c.SetDeadline(time.Now().Add(waitTime))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Errorf("%s: revived: %v", addr, err)
		}
	}
}

func echo(c net.Conn, wait time.Duration) error {
	c.SetDeadline(time.Now().Add(wait))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// TestNetnsLeak takes the entry of an established connection away while its
// server sends: the client must not see the real server's address.
func TestNetnsLeak(t *testing.T) {
	type variant struct {
		addr         string
		anyPort, fib bool
	}
	var variants []variant
	for _, addr := range addresses {
		variants = append(variants, variant{addr, false, true}, variant{addr, true, true}, variant{addr, false, false})
	}
	for _, v := range variants {
		addr, anyPort := v.addr, v.anyPort
		t.Run(fmt.Sprintf("%s any port %v fib %v", addr, anyPort, v.fib), func(t *testing.T) {
			l := newLab(t, Options{FailOpen: true})
			if !v.fib {
				l.rules.able.Fib = ErrUnsupported
			}
			s := bothVersions()
			if anyPort {
				for i := range s.Servers {
					s.Servers[i].Address = netip.AddrPortFrom(s.Servers[i].Address.Addr(), 0)
				}
				for i := range s.Services {
					k := &s.Services[i].Key
					k.Address = netip.AddrPortFrom(k.Address.Addr(), 8080)
				}
				host, _, _ := net.SplitHostPort(addr)
				addr = net.JoinHostPort(host, "8080")
			}
			l.apply(s)
			nft(t, l.rulesOf(l.client), `table inet watch {
					counter leaked {}
					chain in {
						type filter hook prerouting priority -300
						ip saddr 10.0.0.0/8 counter name leaked
						ip6 saddr fd00::/16 counter name leaked
					}
				}`)
			c, name := l.dial("tcp", addr)
			server := l.servers[name[0]-'0']
			e := l.flowOf(c.LocalAddr(), every)
			// Nothing leaves the client, so only the server's own tries count.
			nft(t, l.rulesOf(l.client), `table inet mute { chain out {
					type filter hook output priority 0; meta l4proto tcp drop;
					}
				}`)
			nft(t, l.rulesOf(server), `table inet sent { counter n {}
					chain out { type filter hook output priority 0; meta l4proto tcp counter name n; }
				}`)
			l.lose(&e)
			// Connection tracking takes the first for new, the last for invalid.
			for _, send := range []func(*netnstest.NS){l.kick, l.abort} {
				before := l.counterOf(server, "sent", "n")
				send(server)
				for end := time.Now().Add(waitTime); l.counterOf(server, "sent", "n") == before; time.Sleep(5 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("the server sent nothing")
					}
				}
				time.Sleep(20 * time.Millisecond)
				if n := l.counterOf(l.client, "watch", "leaked"); n != 0 {
					t.Errorf("%d packets leaked", n)
				}
			}
		})
	}
}

// TestNetnsLeakNotOwn lets what belongs to no flow pass where it is for the
// balancer itself, a client of the real server, and what comes from others.
func TestNetnsLeakNotOwn(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(bothVersions())
	l.serveTCP(l.client, "198.51.100.2:9000", "C")
	l.serveTCP(l.client, "[2001:db8:1::2]:9000", "C")
	for _, test := range []struct {
		client, server *netnstest.NS
		addr           string
	}{
		{l.lb, l.servers[0], serverAddr(4, 0)},
		{l.lb, l.servers[0], serverAddr(6, 0)},
		{l.servers[0], l.client, "198.51.100.2:9000"},
		{l.servers[0], l.client, "[2001:db8:1::2]:9000"},
	} {
		c, err := test.client.DialContext(t.Context(), "tcp", test.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(waitTime))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		e := l.flowOf(c.LocalAddr(), every)
		l.lose(&e)
		l.kick(test.server)
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			t.Errorf("%s: %v", test.addr, err)
		}
	}
}

// TestNetnsDecideOnce sends datagrams that nobody answers, and a connection
// attempt that is retried: one decision each.
func TestNetnsDecideOnce(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(bothVersions())
	for _, s := range l.servers {
		nft(t, l.rulesOf(s), `table inet mute { counter syns {}
			chain in { type filter hook prerouting priority -300; tcp flags syn counter name syns; meta l4proto { tcp, udp } drop; }
		}`)
	}
	d := l.serve(to(0))
	for _, addr := range addresses {
		before := len(d.packets())
		c, err := l.client.DialContext(t.Context(), "udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			c.Write([]byte("?"))
			l.flowOf(c.LocalAddr(), every)
		}
		c.Close()
		if got := len(d.packets()) - before; got != 1 {
			t.Errorf("%s: five datagrams: want one decision, got %d", addr, got)
		}
	}
	before := len(d.packets())
	l.tryTwice("192.0.2.1:80", func() int { return l.counterOf(l.servers[0], "mute", "syns") })
	if got := len(d.packets()) - before; got != 1 {
		t.Errorf("two SYN of one connection: want one decision, got %d", got)
	}
}

// TestNetnsMidStream loses an entry in the middle of a connection: what follows
// is not scheduled afresh.
func TestNetnsMidStream(t *testing.T) {
	s := bothVersions()
	for i := range s.Services {
		// The server that has the connection would go on with it.
		s.Services[i].Fallback = s.Services[i].Fallback[1:]
	}
	eachWay(t, Options{}, s, func(t *testing.T, l *lab) {
		for _, addr := range addresses {
			c, _ := l.dial("tcp", addr)
			e := l.flowOf(c.LocalAddr(), every)
			l.lose(&e)
			if err := echo(c, waitTime); err == nil || isTimeout(err) {
				t.Errorf("%s: want the connection reset, got %v", addr, err)
			}
			if n := l.flows(func(n *conntrack.Event) bool { return n.Orig == e.Orig && n.Mark&DefaultMask != 0 }); len(n) != 0 {
				t.Errorf("%s: scheduled afresh: %+v", addr, n)
			}
		}
	})
}

// TestNetnsGone gives a mark that no real server has any more: the packet is
// dropped, and the next try is decided afresh.
func TestNetnsGone(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(bothVersions())
	l.serveTCP(l.lb, "192.0.2.1:80", "host")
	tries := 0
	l.serve(func(in packet.Info) uint32 {
		if tries++; tries == 1 {
			return 99 << 8
		}
		return mark2
	})
	if name, err := l.ask(l.client, "tcp", "192.0.2.1:80"); name != "1" || err != nil {
		t.Errorf("want server 1 at the second try, got %q, %v", name, err)
	}
	if tries != 2 {
		t.Errorf("want two decisions, got %d", tries)
	}
}

func TestNetnsTimeouts(t *testing.T) {
	s := bothVersions()
	eachWay(t, Options{}, s, func(t *testing.T, l *lab) {
		if err := l.rules.Abilities().CTTimeout; err != nil {
			t.Fatal(err)
		}
		near := func(want time.Duration) func(*conntrack.Event) bool {
			return func(e *conntrack.Event) bool { return e.Timeout <= want && e.Timeout > want-20*time.Second }
		}
		for _, addr := range addresses {
			l.apply(s)
			c, _ := l.dial("tcp", addr)
			l.flowOf(c.LocalAddr(), near(900*time.Second))
			u, _ := l.dial("udp", addr)
			l.flowOf(u.LocalAddr(), near(300*time.Second))

			changed := s
			changed.Timeouts = ipvs.Timeouts{TCP: 500 * time.Second, TCPFin: 50 * time.Second, UDP: 70 * time.Second}
			l.apply(changed)
			c2, _ := l.dial("tcp", addr)
			l.flowOf(c2.LocalAddr(), near(500*time.Second))
			u2, _ := l.dial("udp", addr)
			l.flowOf(u2.LocalAddr(), near(70*time.Second))
			c2.(*net.TCPConn).CloseWrite()
			// Flows from before keep theirs.
			if err := echo(c, waitTime); err != nil {
				t.Error(err)
			}
			l.flowOf(c.LocalAddr(), near(900*time.Second))
		}
	})
}
