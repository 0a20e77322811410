package ruleset

import (
	"context"
	"fmt"
	"io"

	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// lab is a client, a balancer and two real servers, each in a namespace.
type lab struct {
	t       testing.TB
	client  *netnstest.NS
	lb      *netnstest.NS
	servers []*netnstest.NS
	rules   *Rules
	mu      sync.Mutex
	conns   map[*netnstest.NS][]net.Conn
}

func (l *lab) keep(ns *netnstest.NS, c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[ns] = append(l.conns[ns], c)
}

// kick makes a server send on its connections.
func (l *lab) kick(ns *netnstest.NS) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns[ns] {
		io.WriteString(c, "kick")
	}
}

// abort resets the connections of a server.
func (l *lab) abort(ns *netnstest.NS) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns[ns] {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

const waitTime = 15 * time.Second

func newLab(t *testing.T, o Options) *lab {
	t.Helper()
	netnstest.Require(t, "netns")
	l := &lab{t: t, client: netnstest.New(t), lb: netnstest.New(t)}
	l.init()
	netnstest.Veth(l.client, "eth0", l.lb, "client")
	l.client.AddAddr("eth0", "198.51.100.2/24")
	l.client.AddAddr("eth0", "2001:db8:1::2/64")
	l.lb.AddAddr("client", "198.51.100.1/24")
	l.lb.AddAddr("client", "2001:db8:1::1/64")
	l.client.AddRoute("0.0.0.0/0", "198.51.100.1")
	l.client.AddRoute("::/0", "2001:db8:1::1")
	l.lb.AddAddr("lo", "192.0.2.1/32")
	l.lb.AddAddr("lo", "2001:db8::1/128")
	l.lb.SetSysctl("net.ipv4.ip_forward", "1")
	l.lb.SetSysctl("net.ipv6.conf.all.forwarding", "1")
	for i := range 2 {
		s := netnstest.New(t)
		dev := fmt.Sprintf("server%d", i)
		netnstest.Veth(s, "eth0", l.lb, dev)
		s.AddAddr("eth0", fmt.Sprintf("10.0.%d.2/24", i))
		s.AddAddr("eth0", fmt.Sprintf("fd00:%d::2/64", i))
		l.lb.AddAddr(dev, fmt.Sprintf("10.0.%d.1/24", i))
		l.lb.AddAddr(dev, fmt.Sprintf("fd00:%d::1/64", i))
		s.AddRoute("0.0.0.0/0", fmt.Sprintf("10.0.%d.1", i))
		s.AddRoute("::/0", fmt.Sprintf("fd00:%d::1", i))
		l.servers = append(l.servers, s)
		name := fmt.Sprint(i)
		for _, addr := range []string{serverAddr(4, i), serverAddr(6, i)} {
			l.serveTCP(s, addr, name)
			l.serveUDP(s, addr, name)
		}
	}
	l.open(o)
	return l
}

func (l *lab) init() { l.conns = map[*netnstest.NS][]net.Conn{} }

func (l *lab) open(o Options) {
	l.t.Helper()
	o.NetNS = l.lb.FD()
	if o.Queue == 0 {
		o.Queue = 7
	}
	r, err := Open(l.t.Context(), o)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { r.Close() })
	l.rules = r
}

func serverAddr(version, i int) string {
	if version == 6 {
		return fmt.Sprintf("[fd00:%d::2]:8080", i)
	}
	return fmt.Sprintf("10.0.%d.2:8080", i)
}

func (l *lab) serveTCP(s *netnstest.NS, addr, name string) {
	ln := s.Listen("tcp", addr)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				l.keep(s, c)
				io.WriteString(c, name)
				io.Copy(c, c)
			}()
		}
	}()
}

func (l *lab) serveUDP(s *netnstest.NS, addr, name string) {
	pc := s.ListenPacket("udp", addr)
	if name == "1" && addr[0] != '[' {
		// One of them answers without checksums.
		l.noChecksum(pc.(*net.UDPConn))
	}
	go func() {
		b := make([]byte, 2000)
		for {
			_, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			pc.WriteTo([]byte(name), from)
		}
	}()
}

// ask opens a flow from a namespace and returns the name of who answered.
func (l *lab) ask(ns *netnstest.NS, network, addr string) (string, error) {
	ctx, cancel := context.WithTimeout(l.t.Context(), waitTime)
	defer cancel()
	c, err := ns.DialContext(ctx, network, addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return answerTo(c, network)
}

// answerTo returns the server's name, which it says of itself.
func answerTo(c net.Conn, network string) (string, error) {
	c.SetDeadline(time.Now().Add(waitTime))
	if network == "udp" {
		c.Write([]byte("?"))
	}
	b := make([]byte, 1)
	_, err := io.ReadFull(c, b)
	return string(b), err
}

func (l *lab) apply(s Spec) {
	l.t.Helper()
	if err := l.rules.Apply(l.t.Context(), s); err != nil {
		l.t.Fatal(err)
	}
}

// ruleset returns what the nft command lists.
func (l *lab) ruleset() string {
	l.t.Helper()
	out, err := l.lb.Run(exec.Command("nft", "list", "ruleset"))
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

const (
	mark1 = 1 << 8
	mark2 = 2 << 8
	mark3 = 3 << 8
	mark4 = 4 << 8
)

// bothVersions are a service for each protocol and version, with two servers.
func bothVersions() Spec {
	var s Spec
	four := []Share{{mark1, 1}, {mark2, 1}}
	six := []Share{{mark3, 1}, {mark4, 1}}
	for i, m := range []uint32{mark1, mark2} {
		s.Servers = append(s.Servers, Server{Mark: m, Address: netip.MustParseAddrPort(serverAddr(4, i))})
	}
	for i, m := range []uint32{mark3, mark4} {
		s.Servers = append(s.Servers, Server{Mark: m, Address: netip.MustParseAddrPort(serverAddr(6, i))})
	}
	for i, p := range []ipvs.Protocol{ipvs.TCP, ipvs.UDP} {
		s.Services = append(s.Services,
			Service{ID: uint32(i*2 + 1), Key: ipvs.AddrService(p, netip.MustParseAddrPort("192.0.2.1:80")), Fallback: four},
			Service{ID: uint32(i*2 + 2), Key: ipvs.AddrService(p, netip.MustParseAddrPort("[2001:db8::1]:80")), Fallback: six})
	}
	return s
}

func TestNetnsFallback(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(bothVersions())
	if testing.Verbose() {
		t.Log(l.ruleset())
	}
	for _, from := range []struct {
		name string
		ns   *netnstest.NS
	}{{"remote client", l.client}, {"local client", l.lb}} {
		for _, network := range []string{"tcp", "udp"} {
			for _, addr := range []string{"192.0.2.1:80", "[2001:db8::1]:80"} {
				t.Run(strings.Join([]string{from.name, network, addr}, " "), func(t *testing.T) {
					seen := map[string]int{}
					for range 40 {
						name, err := l.ask(from.ns, network, addr)
						if err != nil {
							t.Fatalf("%v; rules:\n%s", err, l.ruleset())
						}
						seen[name]++
					}
					if seen["0"] < 5 || seen["1"] < 5 {
						t.Errorf("weights 1 and 1: want about 20 each, got %v", seen)
					}
				})
			}
		}
	}
}
