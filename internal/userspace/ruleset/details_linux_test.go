package ruleset

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/packet"
)

// counter returns how many packets a named counter of table inet other saw.
func (l *lab) counter(ns *netnstest.NS, name string) int {
	l.t.Helper()
	return l.counterOf(ns, "other", name)
}

func (l *lab) counterOf(ns *netnstest.NS, table, name string) int {
	l.t.Helper()
	list := nft(l.t, l.rulesOf(ns), "list", "counter", "inet", table, name)
	var n, bytes int
	if _, err := fmt.Sscanf(list[strings.Index(list, "packets"):], "packets %d bytes %d", &n, &bytes); err != nil {
		l.t.Fatalf("%s: %v", list, err)
	}
	return n
}

// TestNetnsMarkBits gives real servers marks that have every bit between them, and
// packets and connections bits of others and stale ones of ours.
func TestNetnsMarkBits(t *testing.T) {
	const even, odd = 0x05555500, 0x0aaaaa00
	s := bothVersions()
	s.Servers[0].Mark, s.Servers[1].Mark = even, odd
	for _, mark := range []uint32{even, odd} {
		for _, way := range []string{"queue", "fallback"} {
			l := newLab(t, Options{FailOpen: true})
			s.Services[0].Fallback = []Share{{mark, 1}}
			l.apply(s)
			if way == "queue" {
				l.serve(func(packet.Info) uint32 { return mark })
			}
			nft(t, l.rules, `table inet other {
				counter right {}
				chain before { type filter hook prerouting priority mangle; meta mark set 0x25; ct state new ct mark set 0x90000f42; }
				chain after { type filter hook prerouting priority -50
					ct state new meta mark `+fmt.Sprint(mark|0x25)+` meta priority 0 counter name right
				}
			}`)
			c, _ := l.dial("tcp", addresses[0])
			if e := l.flowOf(c.LocalAddr(), every); e.Mark != mark|0x42 {
				t.Errorf("%s: connection mark: want %#x, got %#x", way, mark|0x42, e.Mark)
			}
			if n := l.counter(l.lb, "right"); n != 1 {
				t.Errorf("%s: want one packet with mark %#x and no priority, got %d", way, mark|0x25, n)
			}
		}
	}
}

// TestNetnsPriority sees that no packet keeps a priority that lbd set.
func TestNetnsPriority(t *testing.T) {
	const watch = `table inet other {
		counter dirty {}
		chain after { type filter hook prerouting priority -50; meta l4proto { tcp, udp } meta priority != 0 counter name dirty; }
		chain copies { type filter hook output priority 0; meta l4proto { tcp, udp } meta priority != 0 counter name dirty; }
	}`
	eachWay(t, Options{}, persistent(), func(t *testing.T, l *lab) {
		nft(t, l.rules, watch)
		for range 3 {
			for _, network := range []string{"tcp", "udp"} {
				for _, addr := range addresses {
					if _, err := l.ask(l.client, network, addr); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if n := l.counter(l.lb, "dirty"); n != 0 {
			t.Errorf("%d packets with a priority", n)
		}
	})
	t.Run("route", func(t *testing.T) {
		l := newRouteLab(t, Options{FailOpen: true})
		l.apply(routed())
		nft(t, l.rules, watch)
		for _, addr := range routeAddresses {
			c, _ := l.dial("tcp", addr)
			if err := echo(c, waitTime); err != nil {
				t.Fatal(err)
			}
			c.Close()
			l.waitFlow(c.LocalAddr().String(), func(f Flow) bool { return f.Inactive })
			l.dial("udp", addr)
		}
		if n := l.counter(l.lb, "dirty"); n != 0 {
			t.Errorf("%d packets with a priority", n)
		}
	})
}

// TestNetnsServerAsClient has real servers open flows of their own, from the
// address and port of the service where that is possible.
func TestNetnsServerAsClient(t *testing.T) {
	s := bothVersions()
	for i := range s.Servers {
		s.Servers[i].Address = netip.AddrPortFrom(s.Servers[i].Address.Addr(), 0)
	}
	l := newLab(t, Options{FailOpen: true})
	l.apply(s)
	for _, addr := range []string{"198.51.100.2:9000", "[2001:db8:1::2]:9000"} {
		l.serveTCP(l.client, addr, "C")
		l.serveUDP(l.client, addr, "C")
		for _, network := range []string{"tcp", "udp"} {
			if name, err := l.ask(l.servers[0], network, addr); name != "C" || err != nil {
				t.Errorf("%s to %s: %q, %v", network, addr, name, err)
			}
		}
	}
}

// TestNetnsRelated opens a connection to a service that a connection tracking
// helper of another program expects: it is none of lbd's.
func TestNetnsRelated(t *testing.T) {
	eachWay(t, Options{}, bothVersions(), func(t *testing.T, l *lab) {
		l.serveTCP(l.lb, "192.0.2.1:80", "host")
		l.serveTCP(l.client, "198.51.100.2:9000", "C")
		nft(t, l.rules, `table ip other {
			ct expectation back { protocol tcp; dport 80; timeout 1m; size 8; l3proto ip; }
			chain out { type filter hook output priority mangle; tcp dport 9000 ct expectation set "back"; }
		}`)
		err := l.lb.Do(func() error {
			d := net.Dialer{Timeout: waitTime, LocalAddr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}}
			c, err := d.Dial("tcp", "198.51.100.2:9000")
			if err == nil {
				defer c.Close()
				_, err = io.ReadFull(c, make([]byte, 1))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if name, err := l.ask(l.client, "tcp", "192.0.2.1:80"); name != "h" || err != nil {
			t.Errorf("expected: want the host itself, got %q, %v", name, err)
		}
		if name, err := l.ask(l.client, "tcp", "192.0.2.1:80"); name == "h" || err != nil {
			t.Errorf("the next: want a real server, got %q, %v", name, err)
		}
	})
}

// TestNetnsForeignFlows closes connections that are none of lbd's.
func TestNetnsForeignFlows(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(bothVersions())
	for _, addr := range []string{serverAddr(4, 0), serverAddr(6, 0)} {
		c, _ := l.dial("tcp", addr)
		l.flowOf(c.LocalAddr(), every)
		c.Close()
		const closed = 7 // TCP_CONNTRACK_TIME_WAIT
		if e := l.flowOf(c.LocalAddr(), func(e *conntrack.Event) bool { return e.TCPState == closed }); e.Mark != 0 {
			t.Errorf("%s: mark %#x", addr, e.Mark)
		}
	}
}

// TestNetnsAnswered sends datagrams after an answer: they are the flow's, whether
// from here or from afar.
func TestNetnsAnswered(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(bothVersions())
	d := l.serve(to(0))
	for name, ns := range map[string]*netnstest.NS{"remote": l.client, "local": l.lb} {
		for _, addr := range addresses {
			before := len(d.packets())
			if seen := l.datagrams(ns, addr, 5, true); seen["0"] != 5 {
				t.Errorf("%s %s: %v", name, addr, seen)
			}
			if got := len(d.packets()) - before; got != 1 {
				t.Errorf("%s %s: five datagrams: want one decision, got %d", name, addr, got)
			}
		}
	}
}

// TestNetnsUnanswered sends datagrams that nobody answers, without a daemon, and
// from here: one decision as well.
func TestNetnsUnanswered(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(bothVersions())
	l.mute(true)
	nft(t, l.rules, `table inet other { counter marked {}
		chain after { type filter hook forward priority 0; meta mark & 0x0fffff00 != 0 counter name marked; }
		chain local { type filter hook output priority 0; meta mark & 0x0fffff00 != 0 counter name marked; }
	}`)
	send := func(ns *netnstest.NS) {
		t.Helper()
		c, err := ns.DialContext(t.Context(), "udp", addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 5 {
			c.Write([]byte("?"))
			l.flowOf(c.LocalAddr(), every)
		}
	}
	send(l.client)
	if n := l.counter(l.lb, "marked"); n != 1 {
		t.Errorf("five datagrams: want one marked, got %d", n)
	}
	d := l.serve(to(0))
	send(l.lb)
	if n := len(d.packets()); n != 1 {
		t.Errorf("five datagrams from here: want one decision, got %d", n)
	}
}
