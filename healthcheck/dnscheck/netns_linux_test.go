package dnscheck

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/checktest"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// lab is a balancer with a router between it and the servers' network. The host
// 10.0.1.2 serves the zone, 10.0.1.3 is slow, 10.0.1.4 answers wrongly, 10.0.1.5
// hangs and 10.0.1.6 has no server; 192.0.2.0/24 is
// unreachable, 198.51.100.0/24 a black hole, and so for IPv6 (fd00:1::/64,
// 2001:db8:1::/48 and 2001:db8:2::/48).
type lab struct{ lb, router, server *netnstest.NS }

func newLab(t *testing.T) lab {
	t.Helper()
	netnstest.Require(t, "netns")
	l := lab{netnstest.New(t), netnstest.New(t), netnstest.New(t)}
	netnstest.Veth(l.lb, "eth0", l.router, "lb")
	netnstest.Veth(l.server, "eth0", l.router, "servers")
	l.lb.AddAddr("eth0", "10.0.0.1/24")
	l.lb.AddAddr("eth0", "10.0.0.11/24")
	l.lb.AddAddr("eth0", "fd00::1/64")
	l.router.AddAddr("lb", "10.0.0.254/24")
	l.router.AddAddr("lb", "fd00::fe/64")
	l.router.AddAddr("servers", "10.0.1.254/24")
	l.router.AddAddr("servers", "fd00:1::fe/64")
	for _, host := range []string{"2", "3", "4", "5", "6"} {
		l.server.AddAddr("eth0", "10.0.1."+host+"/24")
		l.server.AddAddr("eth0", "fd00:1::"+host+"/64")
	}
	l.router.SetSysctl("net.ipv4.ip_forward", "1")
	l.router.SetSysctl("net.ipv6.conf.all.forwarding", "1")
	for _, ns := range []*netnstest.NS{l.lb, l.server} {
		gw4, gw6 := "10.0.0.254", "fd00::fe"
		if ns == l.server {
			gw4, gw6 = "10.0.1.254", "fd00:1::fe"
		}
		ns.AddRoute("0.0.0.0/0", gw4)
		ns.AddRoute("::/0", gw6)
	}
	for kind, prefixes := range map[string][]string{
		"unreachable": {"192.0.2.0/24", "2001:db8:1::/48"},
		"blackhole":   {"198.51.100.0/24", "2001:db8:2::/48"},
	} {
		for _, p := range prefixes {
			if _, err := l.router.Run(exec.Command("ip", "route", "add", kind, p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.serve(t, "2", serveZone)
	l.serve(t, "3", func(w dns.ResponseWriter, ask *dns.Msg) {
		time.Sleep(50 * time.Millisecond)
		serveZone(w, ask)
	})
	l.serve(t, "4", func(w dns.ResponseWriter, ask *dns.Msg) {
		r := new(dns.Msg)
		r.SetRcode(ask, dns.RcodeServerFailure)
		w.WriteMsg(r)
	})
	l.serve(t, "5", func(dns.ResponseWriter, *dns.Msg) {})
	return l
}

// serve runs a server on both transports of a host's addresses.
func (l lab) serve(t *testing.T, host string, h dns.HandlerFunc) {
	t.Helper()
	for _, ip := range []string{"10.0.1." + host, "fd00:1::" + host} {
		at := net.JoinHostPort(ip, "53")
		serve(t, l.server.ListenPacket("udp", at), l.server.Listen("tcp", at), h)
	}
}

func (l lab) check(t *testing.T, timeout time.Duration, c Check, to string) (healthcheck.Result, error) {
	t.Helper()
	k, err := c.NewChecker(netip.MustParseAddrPort(to), healthcheck.Env{Enter: l.lb.Do})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return k.Check(ctx)
}

// TestNetnsServers has every kind of server and of absence.
func TestNetnsServers(t *testing.T) {
	l := newLab(t)
	const long, short = 20 * time.Second, 300 * time.Millisecond
	const late = "no answer in time: context deadline exceeded"
	tests := []struct {
		name, ip string
		timeout  time.Duration
		want     string // what the error ends with
		is       error
	}{
		{"healthy", "10.0.1.2", long, "", nil},
		{"healthy", "fd00:1::2", long, "", nil},
		{"slow", "10.0.1.3", long, "", nil},
		{"slow", "fd00:1::3", long, "", nil},
		{"wrong", "10.0.1.4", long, ": response code SERVFAIL, want NOERROR", nil},
		{"wrong", "fd00:1::4", long, ": response code SERVFAIL, want NOERROR", nil},
		{"hanging", "10.0.1.5", short, late, context.DeadlineExceeded},
		{"hanging", "fd00:1::5", short, late, context.DeadlineExceeded},
		{"refusing", "10.0.1.6", long, ": connection refused", unix.ECONNREFUSED},
		{"refusing", "fd00:1::6", long, ": connection refused", unix.ECONNREFUSED},
		{"unreachable", "192.0.2.1", long, ": no route to host", unix.EHOSTUNREACH},
		{"unreachable", "2001:db8:1::1", long, ": network is unreachable", unix.ENETUNREACH},
		{"black hole", "198.51.100.1", short, late, context.DeadlineExceeded},
		{"black hole", "2001:db8:2::1", short, late, context.DeadlineExceeded},
	}
	for _, tt := range tests {
		for _, transport := range []string{UDP, TCP} {
			c := Check{Transport: transport, Name: "example.org", Type: 1, Answers: []string{"192.0.2.1"}}
			_, err := l.check(t, tt.timeout, c, net.JoinHostPort(tt.ip, "53"))
			good := err == nil
			if tt.want != "" {
				good = strings.HasSuffix(checktest.Text(err), tt.want) && !errors.Is(err, healthcheck.ErrLocal)
			}
			if !good || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%s, %s over %s: want %q, got %v", tt.name, tt.ip, transport, tt.want, err)
			}
		}
	}
}

// TestNetnsVia has the server see the source that was asked for.
func TestNetnsVia(t *testing.T) {
	l := newLab(t)
	seen := make(chan string, 1)
	l.serve(t, "6", func(w dns.ResponseWriter, ask *dns.Msg) {
		host, _, err := net.SplitHostPort(w.RemoteAddr().String())
		if err != nil {
			t.Error(err)
		}
		seen <- host
		serveZone(w, ask)
	})
	for _, transport := range []string{UDP, TCP} {
		for _, source := range []string{"10.0.0.1", "10.0.0.11"} {
			c := Check{Transport: transport, Via: healthcheck.Via{Source: netip.MustParseAddr(source), Interface: "eth0"}}
			if _, err := l.check(t, 20*time.Second, c, "10.0.1.6:53"); err != nil {
				t.Fatal(err)
			}
			if got := <-seen; got != source {
				t.Errorf("%s: want the source %s, got %s", transport, source, got)
			}
		}
		c := Check{Transport: transport, Via: healthcheck.Via{Interface: "nosuch0"}}
		if _, err := l.check(t, 20*time.Second, c, "10.0.1.6:53"); !errors.Is(err, healthcheck.ErrLocal) {
			t.Errorf("%s: want a fault of this host, got %v", transport, err)
		}
	}
}

// TestNetnsTimeWait makes a few hundred checks over TCP, of which none is left on
// either side.
func TestNetnsTimeWait(t *testing.T) {
	l := newLab(t)
	for range 300 {
		if _, err := l.check(t, 20*time.Second, Check{Transport: TCP}, "10.0.1.2:53"); err != nil {
			t.Fatal(err)
		}
	}
	for name, ns := range map[string]*netnstest.NS{"balancer": l.lb, "server": l.server} {
		out, err := ns.Run(exec.Command("ss", "-Htan", "state", "time-wait"))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out, "\n"); n > 10 {
			t.Errorf("%s: %d connections in TIME_WAIT", name, n)
		}
	}
}
