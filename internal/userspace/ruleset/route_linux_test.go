package ruleset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/packet"
	"github.com/lbd-project/lbd/ipvs"
)

// newRouteLab has everybody on one network, and the address of the service on
// all servers, so that answers go to the client without the balancer.
func newRouteLab(t testing.TB, o Options) *lab {
	t.Helper()
	netnstest.Require(t, "netns")
	l := &lab{t: t, client: netnstest.New(t), lb: netnstest.New(t)}
	l.init()
	hub := netnstest.New(t)
	join := func(ns *netnstest.NS, name string, host int) {
		netnstest.Veth(ns, "eth0", hub, name)
		ns.AddAddr("eth0", fmt.Sprintf("198.51.100.%d/24", host))
		ns.AddAddr("eth0", fmt.Sprintf("2001:db8:1::%d/64", host))
	}
	join(l.client, "client", 2)
	join(l.lb, "lb", 1)
	l.lb.AddAddr("eth0", "198.51.100.100/32")
	l.lb.AddAddr("eth0", "2001:db8:1::100/128")
	ports := []string{"client", "lb"}
	for i := range 2 {
		s := netnstest.New(t)
		name := fmt.Sprintf("server%d", i)
		s.SetSysctl("net.ipv4.conf.all.arp_ignore", "1")
		s.SetSysctl("net.ipv4.conf.all.arp_announce", "2")
		join(s, name, 10+i)
		s.AddAddr("lo", "198.51.100.100/32")
		s.AddAddr("lo", "2001:db8:1::100/128")
		ports = append(ports, name)
		l.servers = append(l.servers, s)
		for _, addr := range []string{"198.51.100.100:80", "[2001:db8:1::100]:80"} {
			l.serveTCP(s, addr, fmt.Sprint(i))
			l.serveUDP(s, addr, fmt.Sprint(i))
		}
	}
	hub.AddBridge("br0", ports...)
	l.open(o)
	return l
}

var routeAddresses = []string{"198.51.100.100:80", "[2001:db8:1::100]:80"}

// routed are bothVersions by direct routing.
func routed() Spec {
	s := bothVersions()
	for i := range s.Services {
		v := &s.Services[i]
		v.Forward = ipvs.Route
		v.Key.Address = netip.MustParseAddrPort(routeAddresses[i%2])
	}
	for i := range s.Servers {
		addr := fmt.Sprintf("198.51.100.%d:80", 10+i%2)
		if i >= 2 {
			addr = fmt.Sprintf("[2001:db8:1::%d]:80", 10+i%2)
		}
		s.Servers[i].Address, s.Servers[i].Forward = netip.MustParseAddrPort(addr), ipvs.Route
	}
	return s
}

func TestNetnsRoute(t *testing.T) {
	for _, way := range []string{"queue", "fallback"} {
		t.Run(way, func(t *testing.T) {
			l := newRouteLab(t, Options{FailOpen: true})
			l.apply(routed())
			var d *daemon
			if way == "queue" {
				d = l.serve(to(1))
			}
			for _, network := range []string{"tcp", "udp"} {
				for _, addr := range routeAddresses {
					seen := map[string]int{}
					for range 20 {
						name, err := l.ask(l.client, network, addr)
						if err != nil {
							t.Fatalf("%s %s: %v\n%s", network, addr, err, l.ruleset())
						}
						seen[name]++
					}
					if d != nil && seen["1"] != 20 || d == nil && (seen["0"] == 0 || seen["1"] == 0) {
						t.Errorf("%s %s: %v", network, addr, seen)
					}
				}
			}
			if n := len(l.flows(every)); n != 0 {
				t.Errorf("connection tracking has %d entries", n)
			}
			// The nft command gives up on some rules that the kernel takes.
			l.ruleset()
		})
	}
}

// TestNetnsRouteQueue sees what of a connection the daemon sees: its first packet
// and its first to close.
func TestNetnsRouteQueue(t *testing.T) {
	l := newRouteLab(t, Options{FailOpen: true})
	l.apply(routed())
	for _, addr := range routeAddresses {
		d := l.serve(to(1))
		c, name := l.dial("tcp", addr)
		if name != "1" {
			t.Fatalf("want server 1, got %s", name)
		}
		for range 5 {
			if err := echo(c, waitTime); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		var got []string
		for end := time.Now().Add(waitTime); time.Now().Before(end) && len(got) < 2; time.Sleep(time.Millisecond) {
			got = kinds(d.packets())
		}
		if want := []string{"SYN", "FIN ACK"}; !slices.Equal(want, got) {
			t.Errorf("%s: want %v in the queue, got %v", addr, want, got)
		}
		d.stop()
		// Nobody reads the queue: the connection closes all the same.
		l.halfClose(addr)
	}
}

// halfClose opens a connection, closes one side and waits for the other.
func (l *lab) halfClose(addr string) {
	l.t.Helper()
	c, _ := l.dial("tcp", addr)
	c.(*net.TCPConn).CloseWrite()
	if b, err := io.ReadAll(c); len(b) != 0 || err != nil {
		l.t.Errorf("%s: want the end of the connection, got %q, %v", addr, b, err)
	}
}

// TestNetnsRouteDatagrams decides once for the datagrams of a client's port, as long
// as they go on.
func TestNetnsRouteDatagrams(t *testing.T) {
	l := newRouteLab(t, Options{FailOpen: true})
	s := routed()
	s.Timeouts.UDP = 2 * time.Second
	l.apply(s)
	d := l.serve(inTurn())
	for _, addr := range routeAddresses {
		for try := 1; !l.datagramsGoOn(d, addr, s.Timeouts.UDP); try++ {
			if try == 10 {
				t.Fatal("the host is too slow")
			}
		}
	}
}

// datagramsGoOn sends datagrams from a port for longer than their flow lives without
// any, and wants one decision. It reports whether the host was fast enough to tell.
func (l *lab) datagramsGoOn(d *daemon, addr string, timeout time.Duration) bool {
	l.t.Helper()
	before := len(d.packets())
	c, name := l.dial("udp", addr)
	last := time.Now()
	for start := last; time.Since(start) < timeout*5/4; time.Sleep(timeout / 8) {
		c.SetDeadline(time.Now().Add(waitTime))
		c.Write([]byte("?"))
		b := make([]byte, 10)
		n, err := c.Read(b)
		if err != nil {
			l.t.Fatalf("%s: want server %s, got %v", addr, name, err)
		}
		// The one before may have left the balancer long before it was answered.
		if time.Since(last) > timeout/2 {
			return false
		}
		last = time.Now()
		if string(b[:n]) != name {
			l.t.Fatalf("%s: want server %s, got %q", addr, name, b[:n])
		}
	}
	if n := len(d.packets()) - before; n != 1 {
		l.t.Errorf("%s: want one decision, got %d", addr, n)
	}
	return true
}

// TestNetnsRouteLocal connects from the balancer itself: it cannot be a client of
// what it forwards by direct routing, and is told so.
func TestNetnsRouteLocal(t *testing.T) {
	for _, anyPort := range []bool{false, true} {
		for _, queue := range []bool{true, false} {
			l := newRouteLab(t, Options{FailOpen: true})
			s := routed()
			for i := range s.Services {
				if k := &s.Services[i].Key; anyPort {
					k.Address = netip.AddrPortFrom(k.Address.Addr(), 0)
				}
			}
			l.apply(s)
			var d *daemon
			if queue {
				d = l.serve(to(0))
			}
			for _, network := range []string{"tcp", "udp"} {
				for _, addr := range routeAddresses {
					if _, err := l.ask(l.lb, network, addr); !errors.Is(err, syscall.ECONNREFUSED) {
						t.Errorf("%s %s, any port %v, queue %v: want refused, got %v", network, addr, anyPort, queue, err)
					}
				}
			}
			if queue && len(d.packets()) != 0 {
				t.Errorf("%d packets in the queue", len(d.packets()))
			}
		}
	}
}

// TestNetnsRouteDead drops what clients of a deleted real server send.
func TestNetnsRouteDead(t *testing.T) {
	l := newRouteLab(t, Options{FailOpen: true})
	s := routed()
	l.apply(s)
	l.serve(to(0))
	for _, addr := range routeAddresses {
		c, _ := l.dial("tcp", addr)
		s.Dead = []uint32{mark1, mark3}
		l.apply(s)
		if err := echo(c, 300*time.Millisecond); !isTimeout(err) {
			t.Errorf("%s: want it dropped, got %v", addr, err)
		}
		s.Dead = nil
		l.apply(s)
		c.SetDeadline(time.Now().Add(waitTime))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Errorf("%s: revived: %v", addr, err)
		}
	}
}

// TestNetnsRouteRepeat sends the first packet of a connection twice while nobody
// reads the queue: both go to the same server.
func TestNetnsRouteRepeat(t *testing.T) {
	l := newRouteLab(t, Options{FailOpen: true})
	l.apply(routed())
	for _, s := range l.servers {
		nft(t, l.rulesOf(s), `table inet other { counter arrived {}
			chain in { type filter hook prerouting priority -300; tcp dport 80 counter name arrived drop; }
		}`)
	}
	had := func(i int) int { return l.counter(l.servers[i], "arrived") }
	for range 4 {
		a, b := had(0), had(1)
		l.tryTwice(routeAddresses[0], func() int { return had(0) + had(1) })
		if a, b = had(0)-a, had(1)-b; a > 0 && b > 0 {
			t.Errorf("all SYN of a connection: server 0 had %d, server 1 %d", a, b)
		}
	}
}

// tryTwice connects to where nobody answers, until the first segment has come twice,
// as count tells: the kernel tries again after a second.
func (l *lab) tryTwice(addr string, count func() int) {
	l.t.Helper()
	before := count()
	ctx, cancel := context.WithCancel(l.t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := l.client.DialContext(ctx, "tcp", addr)
		done <- err
	}()
	for end := time.Now().Add(waitTime); count() < before+2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("%s: %d first segments, want 2", addr, count()-before)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		l.t.Fatalf("%s: want no answer, got %v", addr, err)
	}
}

func kinds(list []packet.Info) []string {
	var out []string
	for _, p := range list {
		var f []string
		for _, v := range []struct {
			set  bool
			name string
		}{{p.SYN, "SYN"}, {p.FIN, "FIN"}, {p.RST, "RST"}, {p.ACK, "ACK"}} {
			if v.set {
				f = append(f, v.name)
			}
		}
		out = append(out, strings.Join(f, " "))
	}
	return out
}

// TestNetnsRouteMixed has one real server by direct routing and one by
// masquerading, whose answers come back through the balancer.
func TestNetnsRouteMixed(t *testing.T) {
	eachWay := map[string]bool{"queue": true, "fallback": false}
	for way, queue := range eachWay {
		t.Run(way, func(t *testing.T) {
			l := newRouteLab(t, Options{FailOpen: true})
			l.lb.SetSysctl("net.ipv4.ip_forward", "1")
			l.lb.SetSysctl("net.ipv6.conf.all.forwarding", "1")
			for _, dev := range []string{"all", "eth0"} {
				l.lb.SetSysctl("net.ipv4.conf."+dev+".send_redirects", "0")
			}
			// For IPv6 no sysctl of the balancer does that. The server believes a
			// redirect that comes while no thread has the socket, as on a busy host:
			// its answers then go straight to the client, untranslated.
			l.servers[1].SetSysctl("net.ipv6.conf.eth0.accept_redirects", "0")
			l.servers[1].AddRoute("198.51.100.2/32", "198.51.100.1")
			l.servers[1].AddRoute("2001:db8:1::2/128", "2001:db8:1::1")
			s := routed()
			for i := range s.Services {
				s.Services[i].Mixed = true
			}
			for i := range s.Servers {
				if i%2 == 1 {
					s.Servers[i].Forward = ipvs.Masq
					addr := s.Servers[i].Address.String()
					l.serveTCP(l.servers[1], addr, "masq")
					l.serveUDP(l.servers[1], addr, "masq")
				}
			}
			l.apply(s)
			if queue {
				l.serve(inTurn())
			}
			for _, network := range []string{"tcp", "udp"} {
				for _, addr := range routeAddresses {
					seen := map[string]int{}
					for range 30 {
						name, err := l.ask(l.client, network, addr)
						if err != nil {
							t.Fatalf("%s %s after %v: %v", network, addr, seen, err)
						}
						seen[name]++
					}
					if seen["0"] < 3 || seen["m"] < 3 || seen["0"]+seen["m"] != 30 {
						t.Errorf("%s %s: %v", network, addr, seen)
					}
				}
			}
			for _, e := range l.flows(every) {
				if e.Mark&DefaultMask != mark2 && e.Mark&DefaultMask != mark4 {
					t.Errorf("connection tracking has %+v", e)
				}
			}
		})
	}
}
