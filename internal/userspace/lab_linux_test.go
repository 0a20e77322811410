package userspace

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// lab is a client, a balancer and real servers in namespaces of their own, with
// an engine on the balancer.
type lab struct {
	t                testing.TB
	client, balancer *netnstest.NS
	// hub has the bridge br0 of the balancer and the servers.
	hub     *netnstest.NS
	servers []*labServer
	engine  *Engine
	store   *fakeStore
	// eventBuffer is the size of the socket for events, 0 for the usual.
	eventBuffer int
	// queueLength and failClosed are those of the options, if they are set.
	queueLength uint32
	failClosed  bool
	// queues is how many there are, 0 for two.
	queues int
	// stop ends and closes the engine, stopRunning ends it alone.
	stop, stopRunning func()
}

// labServer answers with its name: to a TCP connection at once, which it then
// keeps open until the client closes it, and to each datagram.
type labServer struct {
	name   string
	ns     *netnstest.NS
	v4, v6 netip.Addr
	// delay is how long an answer on a connection takes, in nanoseconds; an hour
	// is for ever.
	delay atomic.Int64
}

const (
	labVIP4, labVIP6 = "192.0.2.10", "2001:db8::10"
	labPort          = 80
	// patience bounds waits for what comes on a busy host, too, and silence is how
	// long nothing comes where nothing may.
	patience = 30 * time.Second
	silence  = 3 * time.Second
)

func newLab(t testing.TB, servers int) *lab {
	t.Helper()
	netnstest.Require(t, "netns", "nfqueue")
	l := &lab{t: t, client: netnstest.New(t), balancer: netnstest.New(t), store: &fakeStore{}}
	hub := netnstest.New(t)
	l.hub = hub
	hub.AddBridge("br0")
	netnstest.Veth(l.client, "eth0", l.balancer, "front")
	netnstest.Veth(l.balancer, "back", hub, "balancer")
	hub.AddPort("br0", "balancer")
	for _, a := range []string{"198.51.100.100/24", "2001:db8:1::100/64"} {
		l.client.AddAddr("eth0", a)
	}
	for _, a := range []string{"198.51.100.1/24", "2001:db8:1::1/64"} {
		l.balancer.AddAddr("front", a)
	}
	for _, a := range []string{"10.0.0.1/24", "fd00::1/64"} {
		l.balancer.AddAddr("back", a)
	}
	for _, a := range []string{labVIP4 + "/32", labVIP6 + "/128"} {
		l.balancer.AddAddr("lo", a)
	}
	l.client.AddRoute("0.0.0.0/0", "198.51.100.1")
	l.client.AddRoute("::/0", "2001:db8:1::1")
	l.balancer.SetSysctl("net.ipv4.ip_forward", "1")
	l.balancer.SetSysctl("net.ipv6.conf.all.forwarding", "1")
	for i := range servers {
		s := &labServer{name: fmt.Sprintf("s%d", i+1), ns: netnstest.New(t)}
		s.v4 = netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", 2+i))
		s.v6 = netip.MustParseAddr(fmt.Sprintf("fd00::%d", 2+i))
		netnstest.Veth(s.ns, "eth0", hub, s.name)
		hub.AddPort("br0", s.name)
		s.ns.AddAddr("eth0", s.v4.String()+"/24")
		s.ns.AddAddr("eth0", s.v6.String()+"/64")
		s.ns.AddRoute("0.0.0.0/0", "10.0.0.1")
		s.ns.AddRoute("::/0", "fd00::1")
		s.serveTCP(labPort)
		for _, a := range []netip.Addr{s.v4, s.v6} {
			s.serveUDP(netip.AddrPortFrom(a, labPort))
		}
		l.servers = append(l.servers, s)
	}
	t.Cleanup(func() {
		if l.stop != nil {
			l.stop()
		}
	})
	return l
}

// route lets the servers' answers reach the client without the balancer, and
// gives them the VIPs.
func (l *lab) route() {
	l.t.Helper()
	netnstest.Veth(l.client, "eth1", l.hub, "client")
	l.hub.AddPort("br0", "client")
	l.client.AddAddr("eth1", "10.0.0.100/24")
	l.client.AddAddr("eth1", "fd00::100/64")
	for _, s := range l.servers {
		s.ns.SetSysctl("net.ipv4.conf.all.arp_ignore", "1")
		s.ns.SetSysctl("net.ipv4.conf.all.arp_announce", "2")
		s.ns.AddRoute("198.51.100.0/24", "10.0.0.100")
		s.ns.AddRoute("2001:db8:1::/64", "fd00::100")
		for _, a := range []string{labVIP4 + "/32", labVIP6 + "/128"} {
			s.ns.AddAddr("lo", a)
			s.serveUDP(netip.AddrPortFrom(netip.MustParsePrefix(a).Addr(), labPort))
		}
	}
}

func (s *labServer) serveTCP(port int) {
	ln := s.ns.Listen("tcp", fmt.Sprintf("[::]:%d", port))
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := io.WriteString(c, s.name+"\n"); err != nil {
					return
				}
				s.echo(c)
			}()
		}
	}()
}

// echo sends back what comes, each part after the delay, until either side
// closes.
func (s *labServer) echo(c net.Conn) {
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		switch d := time.Duration(s.delay.Load()); {
		case d >= time.Hour:
			continue
		case d > 0:
			time.Sleep(d)
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (s *labServer) serveUDP(at netip.AddrPort) {
	pc := s.ns.ListenPacket("udp", at.String())
	go func() {
		buf := make([]byte, 2000)
		for {
			_, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo([]byte(s.name), from)
		}
	}()
}

// options are those of the lab's engines.
func (l *lab) options() Options {
	ns := l.balancer
	return Options{
		NetNS: ns.FD(), Enter: ns.Do, QueueBase: 100, Queues: cmp.Or(l.queues, 2), QueueLength: l.queueLength,
		FailOpen: !l.failClosed, Store: l.store,
		Logger: slog.New(slog.NewTextHandler(testWriter{l.t}, nil)), eventBuffer: l.eventBuffer,
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	fmt.Fprintf(os.Stderr, "%s: %s", w.t.Name(), b)
	return len(b), nil
}

// open opens an engine and runs it until stop.
func (l *lab) open() {
	l.t.Helper()
	e, err := Open(l.t.Context(), l.options())
	if err != nil {
		l.t.Fatalf("Open: %v", err)
	}
	l.engine = e
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	l.stopRunning = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				l.t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			l.t.Errorf("Run does not end")
		}
	})
	l.stop = sync.OnceFunc(func() {
		l.stopRunning()
		if err := e.Close(); err != nil {
			l.t.Errorf("Close: %v", err)
		}
	})
}

func (l *lab) apply(ops ...ipvs.Op) {
	l.t.Helper()
	if err := l.engine.Apply(context.Background(), ops); err != nil {
		l.t.Fatalf("Apply: %v", err)
	}
}

// service returns the service at the VIP and all servers of the lab with weight
// 1, the first at the head of the list.
func (l *lab) service(p ipvs.Protocol, f ipvs.Family) (ipvs.Service, []ipvs.Op) {
	vip := netip.MustParseAddr(labVIP4)
	if f == ipvs.IPv6 {
		vip = netip.MustParseAddr(labVIP6)
	}
	s := ipvs.Service{ServiceKey: ipvs.AddrService(p, netip.AddrPortFrom(vip, labPort)), Scheduler: "wlc"}
	ops := []ipvs.Op{addOp(s)}
	for i := len(l.servers) - 1; i >= 0; i-- {
		ops = append(ops, add(s, l.servers[i].at(f), 1))
	}
	return s, ops
}

func (s *labServer) at(f ipvs.Family) string {
	a := s.v4
	if f == ipvs.IPv6 {
		a = s.v6
	}
	return netip.AddrPortFrom(a, labPort).String()
}

// conn is a connection of the client, with the name of the server that has it.
type conn struct {
	net.Conn
	server string
	pings  int
}

// dial connects from a namespace and reads the server's name.
func (l *lab) dial(from *netnstest.NS, svc ipvs.Service) (*conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := from.DialContext(ctx, "tcp", svc.Address.String())
	if err != nil {
		return nil, err
	}
	out := &conn{Conn: c}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		c.Close()
		return nil, err
	}
	out.server = strings.TrimSpace(line)
	return out, nil
}

// connect opens n connections of the client, which stay open until the test
// ends, and returns how many each server has.
func (l *lab) connect(svc ipvs.Service, n int) ([]*conn, map[string]int) {
	l.t.Helper()
	return l.connectFrom(l.client, svc, n)
}

func (l *lab) connectFrom(from *netnstest.NS, svc ipvs.Service, n int) ([]*conn, map[string]int) {
	l.t.Helper()
	var conns []*conn
	got := make(map[string]int)
	for range n {
		c, err := l.dial(from, svc)
		if err != nil {
			l.t.Fatalf("connect to %v: %v", svc.ServiceKey, err)
		}
		l.t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
		got[c.server]++
	}
	return conns, got
}

// alive checks that a connection still carries data, which the server sends
// back.
func (c *conn) alive() error { return c.answers(patience) }

// answers is alive for data that comes back in time.
func (c *conn) answers(timeout time.Duration) error {
	c.pings++
	ping := fmt.Sprintf("%04d", c.pings)
	if _, err := io.WriteString(c, ping); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	for b := make([]byte, 4); string(b) != ping; { // earlier ones may come late
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
	}
	return nil
}

// ask sends a datagram from the client's port, 0 for any, and returns the answer. The
// port may be that of the datagram before.
func (l *lab) ask(svc ipvs.Service, port int) (string, error) {
	local := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.100"), uint16(port))
	if svc.Family == ipvs.IPv6 {
		local = netip.AddrPortFrom(netip.MustParseAddr("2001:db8:1::100"), uint16(port))
	}
	var c *net.UDPConn
	err := l.client.WhenFree(func() (err error) {
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(local), net.UDPAddrFromAddrPort(svc.Address))
		return err
	})
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Write([]byte("who")); err != nil {
		return "", err
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	return string(b[:n]), err
}

// conns returns the counts of a service by server name, "A/I/P".
func (l *lab) conns(svc ipvs.Service) map[string]string {
	l.t.Helper()
	list, err := l.engine.Destinations(context.Background(), svc.ServiceKey)
	if err != nil {
		l.t.Fatal(err)
	}
	got := make(map[string]string)
	for _, d := range list {
		for _, s := range l.servers {
			if d.Address.Addr() == s.v4 || d.Address.Addr() == s.v6 {
				got[s.name] = connsText(d.Conns)
			}
		}
	}
	return got
}

// eventually waits until the counts of a service are what they should be.
func (l *lab) eventually(svc ipvs.Service, want map[string]string) {
	l.t.Helper()
	var got map[string]string
	l.until(func() string {
		got = l.conns(svc)
		return diff(want, got)
	}, "counts of %v (-want +got)", svc.ServiceKey)
}

// until waits until check returns nothing.
func (l *lab) until(check func() string, format string, args ...any) {
	l.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		problem := check()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%s: %s", fmt.Sprintf(format, args...), problem)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// tracked returns what conntrack has of each server, "active/inactive".
func (l *lab) tracked() map[string]string {
	l.t.Helper()
	type counts struct{ active, inactive int }
	got := make(map[string]counts)
	err := l.engine.table.Dump(context.Background(), conntrack.Filter{Status: conntrack.StatusDstNAT, StatusMask: conntrack.StatusDstNAT}, func(ev *conntrack.Event) {
		for _, s := range l.servers {
			if a := ev.Reply.Src(); a != s.v4 && a != s.v6 {
				continue
			}
			n := got[s.name]
			if ev.Orig.Protocol == 6 && ev.TCPState <= 3 {
				n.active++
			} else {
				n.inactive++
			}
			got[s.name] = n
		}
	})
	if err != nil && !errors.Is(err, conntrack.ErrInterrupted) {
		l.t.Fatal(err)
	}
	out := make(map[string]string)
	for name, n := range got {
		out[name] = fmt.Sprintf("%d/%d", n.active, n.inactive)
	}
	return out
}
