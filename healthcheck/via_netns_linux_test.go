package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// twoServers makes a balancer with two links that have the same networks at their
// other ends. Each server says its name and where the client comes from, over TCP
// and UDP.
func twoServers(t *testing.T) *netnstest.NS {
	t.Helper()
	lb := netnstest.New(t)
	lb.SetSysctl("net.ipv4.conf.all.rp_filter", "0")
	for i, name := range []string{"a", "b"} {
		server := netnstest.New(t)
		dev := fmt.Sprintf("eth%d", i)
		netnstest.Veth(lb, dev, server, "eth0")
		lb.SetSysctl("net.ipv4.conf."+dev+".rp_filter", "0")
		lb.AddAddr(dev, fmt.Sprintf("10.0.0.10%d/24", i))
		lb.AddAddr(dev, fmt.Sprintf("fd00::10%d/64", i))
		lb.AddAddr(dev, fmt.Sprintf("fe80::10%d/64", i))
		server.AddAddr("eth0", "10.0.0.2/24")
		server.AddAddr("eth0", "fd00::2/64")
		server.AddAddr("eth0", "fe80::2/64")
		server.AddAddr("lo", "192.0.2.5/32")
		ln := server.Listen("tcp", ":80")
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				fmt.Fprintln(c, name, c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone(""))
				c.Close()
			}
		}()
		// One socket for each address, so that the answer comes from it.
		for local, network := range map[string]string{"10.0.0.2:80": "udp4", "192.0.2.5:80": "udp4", "[::]:80": "udp6"} {
			pc := server.ListenPacket(network, local)
			go func() {
				for b := make([]byte, 100); ; {
					_, from, err := pc.ReadFrom(b)
					if err != nil {
						return
					}
					fmt.Fprintln(to{pc, from}, name, from.(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone(""))
				}
			}()
		}
	}
	// The second address of the first link, and a network behind a mark.
	lb.AddAddr("eth0", "10.0.0.7/24")
	lb.AddAddr("eth0", "fd00::7/64")
	for _, args := range []string{"rule add fwmark 0x1f table 100", "route add 192.0.2.0/24 dev eth1 table 100", "route add unreachable 198.51.100.0/24"} {
		if _, err := lb.Run(exec.Command("ip", strings.Fields(args)...)); err != nil {
			t.Fatal(err)
		}
	}
	return lb
}

// to writes packets to one peer.
type to struct {
	net.PacketConn
	addr net.Addr
}

func (w to) Write(b []byte) (int, error) { return w.WriteTo(b, w.addr) }

// ask dials and returns what the server says.
func ask(t *testing.T, v Via, env Env, network, target string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := v.Dial(ctx, env, network, netip.MustParseAddrPort(target))
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, ok := c.(*net.TCPConn); ok != (network == "tcp") {
		t.Errorf("%s: got a %T", network, c)
	}
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if network == "tcp" {
		b, err := io.ReadAll(c)
		return strings.TrimSpace(string(b)), err
	}
	if _, err := c.Write([]byte("?")); err != nil {
		return "", err
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	return strings.TrimSpace(string(b[:n])), err
}

// TestNetnsVia reaches one of two servers with the same address, by each option.
func TestNetnsVia(t *testing.T) {
	netnstest.Require(t, "netns")
	lb := twoServers(t)
	addr := netip.MustParseAddr
	env := Env{Enter: lb.Do}
	tests := []struct {
		name   string
		via    Via
		env    Env
		target string
		want   string
	}{
		{"nothing", Via{}, env, "10.0.0.2:80", "a 10.0.0.100"},
		{"nothing, v6", Via{}, env, "[fd00::2]:80", "a fd00::7"},
		{"mapped", Via{}, env, "[::ffff:10.0.0.2]:80", "a 10.0.0.100"},
		{"source", Via{Source: addr("10.0.0.7")}, env, "10.0.0.2:80", "a 10.0.0.7"},
		{"mapped source", Via{Source: addr("::ffff:10.0.0.7")}, env, "10.0.0.2:80", "a 10.0.0.7"},
		{"source, v6", Via{Source: addr("fd00::100")}, env, "[fd00::2]:80", "a fd00::100"},
		{"interface", Via{Interface: "eth1"}, env, "10.0.0.2:80", "b 10.0.0.101"},
		{"interface, v6", Via{Interface: "eth1"}, env, "[fd00::2]:80", "b fd00::101"},
		{"link-local", Via{Interface: "eth0"}, env, "[fe80::2]:80", "a fe80::100"},
		{"link-local of the other", Via{Interface: "eth1", Source: addr("fe80::101")}, env, "[fe80::2]:80", "b fe80::101"},
		{"mark", Via{Mark: 0x1f}, env, "192.0.2.5:80", "b 10.0.0.101"},
		{"namespace", Via{NetNS: lb.Path()}, Env{}, "10.0.0.2:80", "a 10.0.0.100"},
		{"all", Via{addr("10.0.0.101"), "eth1", 0x1f, lb.Path()}, Env{}, "10.0.0.2:80", "b 10.0.0.101"},
	}
	for _, tt := range tests {
		if err := tt.via.Validate(netip.MustParseAddrPort(tt.target).Addr()); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		for _, network := range []string{"tcp", "udp"} {
			got, err := ask(t, tt.via, tt.env, network, tt.target)
			if got != tt.want || err != nil {
				t.Errorf("%s, %s: want %q, got %q, %v", tt.name, network, tt.want, got, err)
			}
		}
		c, err := TCP{Via: tt.via}.NewChecker(netip.MustParseAddrPort(tt.target), tt.env)
		if err == nil {
			_, err = c.Check(t.Context())
		}
		if err != nil {
			t.Errorf("%s, tcp check: %v", tt.name, err)
		}
	}
}

// TestNetnsViaFaults names what is wrong, and whether it is this host.
func TestNetnsViaFaults(t *testing.T) {
	netnstest.Require(t, "netns")
	lb := twoServers(t)
	env := Env{Enter: lb.Do}
	tests := []struct {
		name    string
		via     Via
		network string
		target  string
		is      error
		local   bool
		text    string
	}{
		{"no route", Via{}, "tcp", "192.0.2.5:80", unix.ENETUNREACH, true, "connect 192.0.2.5:80: connect: network is unreachable (fault of this host)"},
		{"no route, udp", Via{}, "udp", "192.0.2.5:80", unix.ENETUNREACH, true, "connect 192.0.2.5:80: connect: network is unreachable (fault of this host)"},
		{"source of nobody", Via{Source: netip.MustParseAddr("10.0.0.99")}, "tcp", "10.0.0.2:80", unix.EADDRNOTAVAIL, true, "connect 10.0.0.2:80: use source 10.0.0.99: cannot assign requested address: no free local port or address (fault of this host)"},
		{"no such interface", Via{Interface: "eth7"}, "udp", "10.0.0.2:80", unix.ENODEV, true, "connect 10.0.0.2:80: use interface eth7: no such device (fault of this host)"},
		{"no such namespace", Via{NetNS: "lbd-test-nowhere"}, "tcp", "10.0.0.2:80", fs.ErrNotExist, true, "connect 10.0.0.2:80: create socket: open network namespace: open /run/netns/lbd-test-nowhere: no such file or directory (fault of this host)"},
		{"not a namespace", Via{NetNS: "/dev/null"}, "tcp", "10.0.0.2:80", ErrLocal, true, "connect 10.0.0.2:80: create socket: /dev/null: not a network namespace (fault of this host)"},
		{"refused", Via{}, "tcp", "10.0.0.2:81", unix.ECONNREFUSED, false, "connect 10.0.0.2:81: connection refused"},
		{"network", Via{}, "sctp", "10.0.0.2:80", net.UnknownNetworkError("sctp"), false, "connect 10.0.0.2:80: unknown network sctp"},
	}
	for _, tt := range tests {
		_, err := ask(t, tt.via, env, tt.network, tt.target)
		if err == nil || err.Error() != tt.text || !errors.Is(err, tt.is) || errors.Is(err, ErrLocal) != tt.local {
			t.Errorf("%s: want %q, got %v", tt.name, tt.text, err)
		}
	}
	// A target's kernel and a router say so over ICMP.
	if _, err := ask(t, Via{}, env, "udp", "10.0.0.2:81"); !errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, ErrLocal) {
		t.Errorf("udp to a port of nobody: got %v", err)
	}
}

// TestNetnsViaPorts has one local port for two targets: a source address must not
// take a port from all targets at once.
func TestNetnsViaPorts(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	ns.SetSysctl("net.ipv4.ip_local_port_range", "40001 40001")
	for _, ip := range loopbacks {
		v := Via{Source: netip.MustParseAddr(ip)}
		for _, port := range []string{"80", "81"} {
			ln := ns.Listen("tcp", net.JoinHostPort(ip, port))
			c, err := v.Dial(t.Context(), Env{Enter: ns.Do}, "tcp", target(ln))
			if err != nil {
				t.Fatalf("%s, port %s: %v", ip, port, err)
			}
			defer c.Close()
		}
	}
}

// TestNetnsViaUnreachable has a router say that there is no way to the host: UDP
// sockets pass that over unless they are told not to.
func TestNetnsViaUnreachable(t *testing.T) {
	netnstest.Require(t, "netns")
	lb, router := netnstest.New(t), netnstest.New(t)
	netnstest.Veth(lb, "eth0", router, "eth0")
	for host, ns := range map[string]*netnstest.NS{"1": lb, "2": router} {
		ns.AddAddr("eth0", "10.0.0."+host+"/24")
		ns.AddAddr("eth0", "fd00::"+host+"/64")
	}
	router.SetSysctl("net.ipv4.ip_forward", "1")
	router.SetSysctl("net.ipv6.conf.all.forwarding", "1")
	lb.AddRoute("192.0.2.0/24", "10.0.0.2")
	lb.AddRoute("2001:db8::/32", "fd00::2")
	for _, args := range []string{"route add unreachable 192.0.2.0/24", "-6 route add unreachable 2001:db8::/32"} {
		if _, err := router.Run(exec.Command("ip", strings.Fields(args)...)); err != nil {
			t.Fatal(err)
		}
	}
	for target, want := range map[string]error{"192.0.2.1:53": unix.EHOSTUNREACH, "[2001:db8::1]:53": unix.ENETUNREACH} {
		if _, err := ask(t, Via{}, Env{Enter: lb.Do}, "udp", target); !errors.Is(err, want) || errors.Is(err, ErrLocal) {
			t.Errorf("%s: want %v, got %v", target, want, err)
		}
	}
}

// TestNetnsCloseAbort makes connections from one namespace into another, uses
// them, and looks at what is left.
func TestNetnsCloseAbort(t *testing.T) {
	netnstest.Require(t, "netns")
	lb, server := trackedPair(t)
	const n = 300
	for _, address := range []string{"10.0.0.2:80", "[fd00::2]:80"} {
		ln := server.Listen("tcp", address)
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					fmt.Fprintln(c, "hello")
					io.Copy(io.Discard, c)
					c.Close()
				}()
			}
		}()
		for range n {
			c, err := Via{}.Dial(t.Context(), Env{Enter: lb.Do}, "tcp", netip.MustParseAddrPort(address))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, 6)); err != nil {
				t.Fatal(err)
			}
			// As a tls.Conn would be.
			if err := CloseAbort(wrapped{c}); err != nil {
				t.Fatal(err)
			}
			if err := CloseAbort(wrapped{c}); !errors.Is(err, net.ErrClosed) {
				t.Fatalf("closed twice: want net.ErrClosed, got %v", err)
			}
		}
	}
	nothingLeft(t, map[string]*netnstest.NS{"balancer": lb, "server": server}, 2*n)
	closed, other, text := trackedConnections(t, lb)
	if closed == 0 || other > 10 {
		t.Errorf("want tracked connections closed and gone in 10 s; got %d such and %d others:\n%s", closed, other, text)
	}
}

// wrapped hides a connection below NetConn.
type wrapped struct{ c net.Conn }

func (w wrapped) NetConn() net.Conn                { return w.c }
func (w wrapped) Read(b []byte) (int, error)       { return w.c.Read(b) }
func (w wrapped) Write(b []byte) (int, error)      { return w.c.Write(b) }
func (w wrapped) Close() error                     { return w.c.Close() }
func (w wrapped) LocalAddr() net.Addr              { return w.c.LocalAddr() }
func (w wrapped) RemoteAddr() net.Addr             { return w.c.RemoteAddr() }
func (w wrapped) SetDeadline(t time.Time) error    { return w.c.SetDeadline(t) }
func (w wrapped) SetReadDeadline(time.Time) error  { return nil }
func (w wrapped) SetWriteDeadline(time.Time) error { return nil }

// TestNetnsViaBind binds sockets of every kind that probes use.
func TestNetnsViaBind(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	ns.SetSysctl("net.ipv4.ping_group_range", "0 0")
	for _, ip := range []string{"127.0.0.1", "::1"} {
		v := Via{Source: netip.MustParseAddr(ip)}
		domain, icmp := unix.AF_INET, unix.IPPROTO_ICMP
		if v.Source.Is6() {
			domain, icmp = unix.AF_INET6, unix.IPPROTO_ICMPV6
		}
		for _, s := range []struct{ kind, proto int }{
			{unix.SOCK_STREAM, 0}, {unix.SOCK_DGRAM, 0}, {unix.SOCK_RAW, icmp}, {unix.SOCK_DGRAM, icmp},
		} {
			fd, err := v.Socket(Env{Enter: ns.Do}, domain, s.kind, s.proto)
			if err != nil {
				t.Fatal(err)
			}
			if err := v.Bind(fd); err != nil {
				t.Errorf("%s, kind %d, protocol %d: %v", ip, s.kind, s.proto, err)
			} else if self, err := syscall.Getsockname(fd); err != nil || addrPort(self).Addr() != v.Source {
				t.Errorf("%s, kind %d, protocol %d: bound to %v, %v", ip, s.kind, s.proto, addrPort(self), err)
			}
			unix.Close(fd)
		}
	}
}
