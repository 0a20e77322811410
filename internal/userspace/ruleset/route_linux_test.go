package ruleset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
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
			for _, ns := range []*netnstest.NS{l.client, l.lb} {
				for _, network := range []string{"tcp", "udp"} {
					for _, addr := range routeAddresses {
						if ns == l.lb {
							// The address of the service would be its own source.
							continue
						}
						seen := map[string]int{}
						for range 20 {
							name, err := l.ask(ns, network, addr)
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
		c, _ = l.dial("tcp", addr)
		c.Close()
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
							t.Fatalf("%s %s: %v", network, addr, err)
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
