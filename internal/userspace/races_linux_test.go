package userspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// TestNetnsQueueFull has more first packets than the queue takes while nobody
// answers: they are balanced by weight, or dropped, and those are tried again.
func TestNetnsQueueFull(t *testing.T) {
	for _, failClosed := range []bool{false, true} {
		t.Run(fmt.Sprintf("fail closed %v", failClosed), func(t *testing.T) {
			t.Parallel()
			const room, more = 32, 8 // few enough for all to be tried again at once
			l := newLab(t, 2)
			l.queueLength, l.failClosed, l.queues = room, failClosed, 1
			l.open()
			svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
			l.apply(ops...)
			release := l.hold()
			dialed := make(chan error, room+more)
			dial := func() {
				c, err := l.dial(l.client, svc)
				if err == nil {
					t.Cleanup(func() { c.Close() })
				}
				dialed <- err
			}
			for range room {
				go dial()
			}
			l.waiting(room)
			for range more {
				go dial()
			}
			left := room + more
			if failClosed {
				l.until(func() string {
					queues, err := l.engine.kernelQueues()
					if err != nil || len(queues) != 1 || queues[0].Dropped < more {
						return fmt.Sprintf("%+v, %v", queues, err)
					}
					return ""
				}, "%d packets that were dropped", more)
				if n := len(dialed); n != 0 {
					t.Errorf("%d connections got through", n)
				}
				release()
			} else {
				// They need no answer.
				for range more {
					if err := <-dialed; err != nil {
						t.Error(err)
					}
				}
				left = room
				release()
			}
			for range left {
				if err := <-dialed; err != nil {
					t.Error(err)
				}
			}
			l.until(func() string {
				n := 0
				for _, text := range l.conns(svc) {
					var c ipvs.Conns
					fmt.Sscanf(text, "%d/%d/%d", &c.Active, &c.Inactive, &c.Persistent)
					n += int(c.Active)
				}
				if n != room+more {
					return fmt.Sprint(n)
				}
				return ""
			}, "%d active connections", room+more)
			l.until(func() string {
				if said := strings.Contains(strings.Join(l.engine.Warnings(), "\n"), "queue was full"); said != failClosed {
					return fmt.Sprintf("%q", l.engine.Warnings())
				}
				return ""
			}, "a warning where packets were dropped, %v", failClosed)
		})
	}
}

// TestNetnsRemoveWithSYN deletes a real server that a SYN is on its way to: the
// client's next try goes to another one.
func TestNetnsRemoveWithSYN(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	nft(t, l.servers[0].ns, "add table ip mute")
	nft(t, l.servers[0].ns, "add chain ip mute in { type filter hook input priority 0 ; policy drop ; }")
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	if _, err := l.engine.SetSysctl(sysctlNodest, "1"); err != nil {
		t.Fatal(err)
	}
	dialed := make(chan error, 1)
	var c *conn
	go func() {
		var err error
		c, err = l.dial(l.client, svc)
		dialed <- err
	}()
	l.eventually(svc, map[string]string{"s1": "1/0/0", "s2": "0/0/0"})
	l.apply(remove(svc, l.servers[0].at(ipvs.IPv4)))
	if err := <-dialed; err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.server != "s2" {
		t.Errorf("want s2, got %s", c.server)
	}
	l.eventually(svc, map[string]string{"s2": "1/0/0"})
}

// TestNetnsRemoveUnderLoad deletes and adds a real server again and again while
// clients connect. Connections that it had are reset; nobody is refused, and the
// counts are conntrack's in the end.
func TestNetnsRemoveUnderLoad(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	if _, err := l.engine.SetSysctl(sysctlNodest, "1"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var made atomic.Int64
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				c, err := l.client.DialContext(t.Context(), "tcp", svc.Address.String())
				if err != nil {
					t.Errorf("connection: %v", err)
					cancel()
					break
				}
				if err := named(c); err != nil {
					t.Errorf("connection to name a server: %v", err)
				}
				c.Close()
				made.Add(1)
			}
		})
	}
	at := l.servers[0].at(ipvs.IPv4)
	// Which of the two is slower depends on the host.
	for n := 0; ctx.Err() == nil && (n < 40 || made.Load() < 40); n++ {
		l.apply(remove(svc, at))
		l.apply(add(svc, at, 1))
	}
	cancel()
	wg.Wait()
	if n := made.Load(); n < 40 {
		t.Errorf("only %d connections were made", n)
	}
	l.until(func() string {
		got := make(map[string]string)
		for name, text := range l.conns(svc) {
			if text = strings.TrimSuffix(text, "/0"); text != "0/0" {
				got[name] = text
			}
		}
		return diff(l.tracked(), got)
	}, "counts and conntrack (-want +got)")
}

// named reads the server's name. A connection whose server is deleted meanwhile
// ends with the client's next packet: where the client only listens, and has sent
// all that it has to, it must speak to learn of it.
func named(c net.Conn) error {
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		if _, err = c.Read(make([]byte, 10)); !isTimeout(err) {
			break
		}
		if _, err := c.Write([]byte("x")); errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
	}
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// TestNetnsSamePort has a connection through the VIP and one straight to its real
// server from one port of the client, in both orders: conntrack must tell their
// answers apart.
func TestNetnsSamePort(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	direct := ipvs.Service{ServiceKey: ipvs.ServiceKey{Address: netip.MustParseAddrPort(l.servers[0].at(ipvs.IPv4))}}
	for i, order := range [][]ipvs.Service{{svc, direct}, {direct, svc}} {
		var conns []*conn
		for _, to := range order {
			c, err := l.dialFrom(7000+i, to)
			if err != nil {
				t.Fatalf("order %d: connection to %v from the port of another: %v", i, to.Address, err)
			}
			defer c.Close()
			conns = append(conns, c)
		}
		for _, c := range conns {
			if err := c.alive(); err != nil || c.server != "s1" {
				t.Errorf("order %d: connection to %v (%s): %v", i, c.RemoteAddr(), c.server, err)
			}
		}
	}
	l.eventually(svc, map[string]string{"s1": "2/0/0"})
}

// dialFrom connects from a port of the client that others may use too.
func (l *lab) dialFrom(port int, svc ipvs.Service) (*conn, error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.IPv4(198, 51, 100, 100), Port: port},
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			if e := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) }); e != nil {
				return e
			}
			return err
		}}
	out := &conn{}
	if err := l.client.WhenFree(func() (err error) {
		out.Conn, err = d.Dial("tcp", svc.Address.String())
		return err
	}); err != nil {
		return nil, err
	}
	b := make([]byte, 3)
	if err := out.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	_, err := out.Read(b)
	out.server = strings.TrimSpace(string(b))
	return out, err
}

// TestNetnsSameNetwork has a client in the real servers' network: their answers
// do not come back through the balancer, so that it cannot connect, unless the
// host masquerades such clients.
func TestNetnsSameNetwork(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	neighbour := netnstest.New(t)
	netnstest.Veth(neighbour, "eth0", l.hub, "neighbour")
	l.hub.AddPort("br0", "neighbour")
	neighbour.AddAddr("eth0", "10.0.0.200/24")
	neighbour.AddRoute("0.0.0.0/0", "10.0.0.1")
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if c, err := neighbour.DialContext(ctx, "tcp", svc.Address.String()); err == nil {
		c.Close()
		t.Fatal("connected without masquerading: is there a need for it?")
	}
	out, err := l.balancer.Run(exec.Command("nft", "add table ip hairpin; "+
		"add chain ip hairpin post { type nat hook postrouting priority srcnat; }; "+
		"add rule ip hairpin post ip saddr 10.0.0.0/24 ip daddr 10.0.0.0/24 ct status dnat masquerade"))
	if err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	_, got := l.connectFrom(neighbour, svc, 4)
	if got["s1"]+got["s2"] != 4 || got["s1"] == 0 || got["s2"] == 0 {
		t.Errorf("masqueraded connections: got %v", got)
	}
}

// TestNetnsEditWhileQueued rewrites the chains while packets are in the queue: the
// kernel drops all that wait as soon as a base chain goes.
func TestNetnsEditWhileQueued(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	st := l.engine.current()
	spec := l.engine.spec(st)
	const n = 3
	release := l.hold()
	defer release()
	dialed := make(chan error, n)
	for range n {
		go func() {
			c, err := l.dial(l.client, svc)
			if err == nil {
				t.Cleanup(func() { c.Close() })
			}
			dialed <- err
		}()
	}
	l.waiting(n)
	for _, timeout := range []time.Duration{100 * time.Second, 200 * time.Second} {
		spec.Timeouts.TCP = timeout
		if err := l.engine.rules.Apply(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	l.waiting(n)
	release()
	for range n {
		if err := <-dialed; err != nil {
			t.Error(err)
		}
	}
	if s := l.engine.queues[0].Stats(); s.Unknown != 0 || s.Refused != 0 {
		t.Errorf("want every answer taken, got %+v", s)
	}
	l.eventually(svc, map[string]string{"s1": "2/0/0", "s2": "1/0/0"})
}
