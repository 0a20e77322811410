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
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err == nil {
			err = errors.Join(raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1)
			}), err)
		}
		if err != nil {
			l.t.Fatal(err)
		}
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
