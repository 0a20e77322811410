package ruleset

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/packet"
	"github.com/lbd-project/lbd/ipvs"
)

// flows returns the connection tracking entries of the balancer that satisfy
// keep.
func (l *lab) flows(keep func(*conntrack.Event) bool) []conntrack.Event {
	l.t.Helper()
	table, err := conntrack.OpenTable(l.lb.FD())
	if err != nil {
		l.t.Fatal(err)
	}
	defer table.Close()
	var out []conntrack.Event
	err = table.Dump(l.t.Context(), conntrack.Filter{}, func(e *conntrack.Event) {
		if keep(e) {
			out = append(out, *e)
		}
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// lose deletes an entry.
func (l *lab) lose(e *conntrack.Event) {
	l.t.Helper()
	table, err := conntrack.OpenTable(l.lb.FD())
	if err != nil {
		l.t.Fatal(err)
	}
	defer table.Close()
	if err := table.DeleteFlow(l.t.Context(), e.Orig, e.ID); err != nil {
		l.t.Fatal(err)
	}
}

// flowOf waits for one entry whose first packet came from port, and for it to
// satisfy ok.
func (l *lab) flowOf(c net.Addr, ok func(*conntrack.Event) bool) conntrack.Event {
	l.t.Helper()
	port := netip.MustParseAddrPort(c.String()).Port()
	var last []conntrack.Event
	for end := time.Now().Add(waitTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		last = l.flows(func(e *conntrack.Event) bool { return e.Orig.SrcPort == port })
		if len(last) == 1 && ok(&last[0]) {
			return last[0]
		}
	}
	l.t.Fatalf("entry of %v: %+v", c, last)
	return conntrack.Event{}
}

func every(*conntrack.Event) bool { return true }

// dial opens a flow that the test keeps, and reads the server's greeting.
func (l *lab) dial(network, addr string) (net.Conn, string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), waitTime)
	defer cancel()
	c, err := l.client.DialContext(ctx, network, addr)
	if err != nil {
		l.t.Fatalf("%v\n%s", err, l.ruleset())
	}
	l.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(waitTime))
	if network == "udp" {
		c.Write([]byte("?"))
	}
	b := make([]byte, 1)
	if _, err := io.ReadFull(c, b); err != nil {
		l.t.Fatal(err)
	}
	return c, string(b)
}

// eachWay runs a test with a daemon that sends everything to server 1, and with
// none.
func eachWay(t *testing.T, o Options, s Spec, fn func(t *testing.T, l *lab)) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) { fn(t, newWayLab(t, way, o, s)) })
	}
}

// ways are who chooses real servers.
var ways = []string{"queue", "fallback"}

// newWayLab makes a lab where way chooses.
func newWayLab(t *testing.T, way string, o Options, s Spec) *lab {
	t.Helper()
	o.FailOpen = true
	l := newLab(t, o)
	l.apply(s)
	if way == "queue" {
		l.serve(to(1))
	}
	return l
}

// TestNetnsForeignMarks has other programs mark packets and connections before
// lbd: both marks keep their bits.
func TestNetnsForeignMarks(t *testing.T) {
	const foreign = `table inet other {
		chain before { type filter hook prerouting priority mangle; meta mark set 0x25; ct state new ct mark set 0x42; }
		chain after { type filter hook forward priority 10
			ct direction original meta mark & 0xff == 0x25 counter name kept
			ct direction original ct state new meta mark & 0xff != 0x25 counter name lost
		}
		counter kept {}
		counter lost {}
	}`
	eachWay(t, Options{}, bothVersions(), func(t *testing.T, l *lab) {
		nft(t, l.rules, foreign)
		for _, addr := range []string{"192.0.2.1:80", "[2001:db8::1]:80"} {
			c, name := l.dial("tcp", addr)
			e := l.flowOf(c.LocalAddr(), every)
			want := map[string]uint32{"0": mark1, "1": mark2}[name] | 0x42
			if addr[0] == '[' {
				want = map[string]uint32{"0": mark3, "1": mark4}[name] | 0x42
			}
			if e.Mark != want {
				t.Errorf("%s: connection mark: want %#x, got %#x", addr, want, e.Mark)
			}
			c.Close()
			// The mark of a closed connection keeps all bits too.
			l.flowOf(c.LocalAddr(), func(e *conntrack.Event) bool { return e.Mark == want|l.rules.opts.Inactive() })
		}
		if list := l.ruleset(); !strings.Contains(list, "counter lost {\n\t\tpackets 0 ") || strings.Contains(list, "counter kept {\n\t\tpackets 0 ") {
			t.Errorf("the packet's mark was changed:\n%s", list[strings.Index(list, "table inet other"):])
		}
	})
}

// TestNetnsServices finds each kind of service, and nothing else.
func TestNetnsServices(t *testing.T) {
	for _, v := range []struct {
		family   ipvs.Family
		vip, nat string
		servers  []Server
		shares   []Share
	}{
		{ipvs.IPv4, "192.0.2.1", "ip", bothVersions().Servers[:2], []Share{{mark1, 1}, {mark2, 0}}},
		{ipvs.IPv6, "2001:db8::1", "ip6", bothVersions().Servers[2:], []Share{{mark3, 1}, {mark4, 0}}},
	} {
		addr := netip.MustParseAddr(v.vip)
		s := Spec{Servers: v.servers, Services: []Service{
			{ID: 1, Key: ipvs.AddrService(ipvs.TCP, netip.AddrPortFrom(addr, 0)), Fallback: v.shares},
			{ID: 2, Key: ipvs.MarkService(v.family, 9), Fallback: v.shares},
		}}
		eachWay(t, Options{}, s, func(t *testing.T, l *lab) {
			nft(t, l.rules, `table inet other { chain before {
				type filter hook prerouting priority mangle
				udp dport 5000 meta mark set 9
				udp dport 5001 meta mark set 8
			}
			}`)
			want := "0" // by the fallback; the daemon chooses 1
			if strings.HasSuffix(t.Name(), "queue") || strings.Contains(t.Name(), "queue#") {
				want = "1"
			}
			for _, port := range []string{"80", "81"} {
				if name, err := l.ask(l.client, "tcp", net.JoinHostPort(v.vip, port)); name != want || err != nil {
					t.Errorf("every port: want server %s, got %q, %v", want, name, err)
				}
			}
			if name, err := l.ask(l.client, "udp", net.JoinHostPort(v.vip, "5000")); name != want || err != nil {
				t.Errorf("fwmark 9: want server %s, got %q, %v", want, name, err)
			}
			if _, err := l.ask(l.client, "udp", net.JoinHostPort(v.vip, "5001")); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("fwmark 8: want a refusal by the host, got %v", err)
			}
		})
	}
}

// TestNetnsAnyPort sends packets to servers without a port of their own.
func TestNetnsAnyPort(t *testing.T) {
	s := bothVersions()
	for i := range s.Servers {
		s.Servers[i].Address = netip.AddrPortFrom(s.Servers[i].Address.Addr(), 0)
	}
	for i := range s.Services {
		k := &s.Services[i].Key
		k.Address = netip.AddrPortFrom(k.Address.Addr(), 8080)
	}
	eachWay(t, Options{}, s, func(t *testing.T, l *lab) {
		for _, network := range []string{"tcp", "udp"} {
			for _, addr := range []string{"192.0.2.1:8080", "[2001:db8::1]:8080"} {
				if _, err := l.ask(l.client, network, addr); err != nil {
					t.Errorf("%s %s: %v", network, addr, err)
				}
			}
		}
	})
}

func TestNetnsRefuse(t *testing.T) {
	none := bothVersions()
	for i := range none.Services {
		none.Services[i].Fallback = []Share{{none.Servers[0].Mark, 0}}
	}
	for _, test := range []struct {
		name string
		mark uint32
	}{{"verdict", DefaultMask}, {"fallback without servers", 0}} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t, Options{FailOpen: true})
			l.apply(none)
			l.serve(func(packet.Info) uint32 { return test.mark })
			// What the host itself would do with the packet.
			for _, addr := range []string{"192.0.2.1:80", "[2001:db8::1]:80"} {
				l.serveTCP(l.lb, addr, "host")
				l.serveUDP(l.lb, addr, "host")
			}
			for _, ns := range []string{"remote", "local"} {
				for _, network := range []string{"tcp", "udp"} {
					for _, addr := range []string{"192.0.2.1:80", "[2001:db8::1]:80"} {
						from := l.client
						if ns == "local" {
							from = l.lb
						}
						_, err := l.ask(from, network, addr)
						if !errors.Is(err, syscall.ECONNREFUSED) {
							t.Errorf("%s %s %s: want refused, got %v", ns, network, addr, err)
						}
					}
				}
			}
			if n := len(l.flows(every)); n != 0 {
				t.Errorf("want no entries, got %d", n)
			}
		})
	}
}

// TestNetnsFailClosed has nobody read the queue.
func TestNetnsFailClosed(t *testing.T) {
	l := newLab(t, Options{})
	l.apply(bothVersions())
	for _, network := range []string{"tcp", "udp"} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		c, err := l.client.DialContext(ctx, network, "192.0.2.1:80")
		if network == "tcp" && !isTimeout(err) {
			t.Errorf("want the packet dropped, got %v", err)
		}
		if network == "udp" {
			c.SetDeadline(time.Now().Add(300 * time.Millisecond))
			c.Write([]byte("?"))
			if _, err := c.Read(make([]byte, 1)); !isTimeout(err) {
				t.Errorf("want the packet dropped, got %v", err)
			}
		}
		cancel()
	}
	l.serve(to(0))
	if name, err := l.ask(l.client, "tcp", "192.0.2.1:80"); name != "0" || err != nil {
		t.Errorf("with a reader: want server 0, got %q, %v", name, err)
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
