package ruleset

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/packet"
)

// onePacket are the UDP services of bothVersions with one-packet scheduling.
func onePacket(s Spec) Spec {
	s.Services = s.Services[2:]
	for i := range s.Services {
		s.Services[i].OnePacket = true
	}
	for i := range s.Servers {
		s.Servers[i].Service = s.Services[i/2].ID
	}
	return s
}

// inTurn sends packets to both servers alternately.
func inTurn() func(packet.Info) uint32 {
	n := uint32(0)
	return func(in packet.Info) uint32 {
		if in.FIN || in.RST {
			return 0 // of a known flow
		}
		n++
		return to(n % 2)(in)
	}
}

// TestNetnsOnePacket sends many datagrams from one socket, with and without a
// checksum: each is decided, and answers come from the address of the service.
func TestNetnsOnePacket(t *testing.T) {
	for _, way := range []string{"queue", "fallback", "route"} {
		t.Run(way, func(t *testing.T) {
			var l *lab
			vips := addresses
			if way == "route" {
				l, vips = newRouteLab(t, Options{FailOpen: true}), routeAddresses
				l.apply(onePacket(routed()))
			} else {
				l = newLab(t, Options{FailOpen: true})
				l.apply(onePacket(bothVersions()))
			}
			var d *daemon
			if way != "fallback" {
				d = l.serve(inTurn())
			}
			from := map[string]*netnstest.NS{"remote": l.client, "local": l.lb}
			if way == "route" {
				delete(from, "local")
			}
			for where, ns := range from {
				for _, addr := range vips {
					for _, checksum := range []bool{true, false} {
						if !checksum && addr[0] == '[' {
							continue // IPv6 has always one
						}
						before := 0
						if d != nil {
							before = len(d.packets())
						}
						seen := l.datagrams(ns, addr, 20, checksum)
						if seen["0"] < 2 || seen["1"] < 2 || seen["0"]+seen["1"] != 20 {
							t.Errorf("%s %s checksum %v: want 20 datagrams at both servers, got %v", where, addr, checksum, seen)
						}
						if d != nil && len(d.packets())-before != 20 {
							t.Errorf("%s %s: want 20 decisions, got %d", where, addr, len(d.packets())-before)
						}
					}
				}
			}
			if n := len(l.flows(every)); n != 0 {
				t.Errorf("connection tracking has %d entries", n)
			}
		})
	}
}

// datagrams sends n from one socket and counts who answered.
func (l *lab) datagrams(ns *netnstest.NS, addr string, n int, checksum bool) map[string]int {
	l.t.Helper()
	c, err := ns.DialContext(l.t.Context(), "udp", addr)
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	if !checksum {
		l.noChecksum(c.(*net.UDPConn))
	}
	seen := map[string]int{}
	c.SetDeadline(time.Now().Add(waitTime))
	for range n {
		if _, err := c.Write([]byte("?")); err != nil {
			l.t.Fatal(err)
		}
		b := make([]byte, 10)
		size, err := c.Read(b)
		if err != nil {
			l.t.Errorf("%s: %v", addr, err)
			break
		}
		seen[string(b[:size])]++
	}
	return seen
}

// TestNetnsOnePacketRefuse answers a datagram that nobody takes.
func TestNetnsOnePacketRefuse(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(onePacket(bothVersions()))
	l.serve(func(packet.Info) uint32 { return DefaultMask })
	for _, addr := range addresses {
		l.serveUDP(l.lb, addr, "host")
		if _, err := l.ask(l.client, "udp", addr); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: want refused, got %v", addr, err)
		}
	}
}

// TestNetnsOnePacketOthers leaves what belongs to no such service to connection
// tracking.
func TestNetnsOnePacketOthers(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	s := bothVersions()
	each := onePacket(bothVersions())
	s.Services = append(s.Services[:2], each.Services...)
	s.Servers = each.Servers
	l.apply(s)
	for _, addr := range addresses {
		c, name := l.dial("tcp", addr)
		e := l.flowOf(c.LocalAddr(), every)
		if e.Mark&DefaultMask == 0 {
			t.Errorf("TCP of server %s: %+v", name, e)
		}
	}
	if list := l.ruleset(); !strings.Contains(list, "notrack") {
		t.Errorf("no notrack in\n%s", list)
	}
}

// TestNetnsOnePacketAmbiguous has a real server that answers for two services.
func TestNetnsOnePacketAmbiguous(t *testing.T) {
	r := openEmpty(t, Options{FailOpen: true})
	s := onePacket(bothVersions())
	two := s.Services[0]
	two.ID, two.Key.Address = 9, twoPorts(two.Key.Address)
	s.Services = append(s.Services, two)
	s.Servers = append(s.Servers, Server{Mark: 9 << 8, Service: 9, Address: s.Servers[0].Address})
	err := r.Apply(context.Background(), s)
	if err == nil || !strings.Contains(err.Error(), "two one-packet services") {
		t.Errorf("want it refused, got %v", err)
	}
	s.Servers = s.Servers[:4]
	if err := r.Apply(context.Background(), s); err != nil {
		t.Errorf("after that: %v", err)
	}
}

func twoPorts(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr(), a.Port()+1) }

// noChecksum lets a socket of IPv4 send without checksums.
func (l *lab) noChecksum(c *net.UDPConn) {
	l.t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		l.t.Fatal(err)
	}
	var optErr error
	err = raw.Control(func(fd uintptr) { optErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1) })
	if err := errors.Join(err, optErr); err != nil {
		l.t.Fatal(err)
	}
}

// TestNetnsOnePacketAnyPort has real servers without a port of their own. Their
// answers come from where the service is not, so only the way there counts.
func TestNetnsOnePacketAnyPort(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	s := onePacket(bothVersions())
	for i := range s.Services {
		k := &s.Services[i].Key
		k.Address = netip.AddrPortFrom(k.Address.Addr(), 8080)
	}
	for i := range s.Servers {
		s.Servers[i].Address = netip.AddrPortFrom(s.Servers[i].Address.Addr(), 0)
	}
	l.apply(s)
	l.serve(to(0))
	nft(t, l.rulesOf(l.servers[0]), arrived)
	for i, addr := range []string{"192.0.2.1:8080", "[2001:db8::1]:8080"} {
		c, err := l.client.DialContext(t.Context(), "udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte("?"))
		l.waitCounter(l.servers[0], "arrived", i+1)
		c.Close()
	}
}

// TestNetnsOnePacketGone gives a mark that no real server has: the host must not
// take the datagram for its own.
func TestNetnsOnePacketGone(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(onePacket(bothVersions()))
	tries := 0
	l.serve(func(in packet.Info) uint32 {
		if tries++; tries%2 == 1 {
			return 99 << 8
		}
		return to(0)(in)
	})
	for _, addr := range addresses {
		l.serveUDP(l.lb, addr, "host")
		c, err := l.client.DialContext(t.Context(), "udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(waitTime))
		c.Write([]byte("?"))
		c.Write([]byte("?"))
		b := make([]byte, 10)
		if n, err := c.Read(b); string(b[:n]) != "0" || err != nil {
			t.Errorf("%s: want the second datagram's answer alone, got %q, %v", addr, b[:n], err)
		}
	}
}

// arrived counts what comes to a server's services.
const arrived = `table inet other {
	counter arrived {}
	chain in { type filter hook prerouting priority -300; udp dport { 80, 8080 } counter name arrived; }
}`

func (l *lab) waitCounter(ns *netnstest.NS, name string, want int) {
	l.t.Helper()
	for end := time.Now().Add(waitTime); l.counter(ns, name) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("counter %s: want %d, got %d", name, want, l.counter(ns, name))
		}
	}
}
