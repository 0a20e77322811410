package icmpcheck

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
)

// TestNetnsHosts has every kind of host and of absence.
func TestNetnsHosts(t *testing.T) {
	l := newLab(t)
	// A host that is there and answers pings 50 ms late, and one that never does.
	slow := newSlow(t, l)
	l.host.AddAddr("eth0", "10.0.1.4/24")
	l.host.AddAddr("eth0", "fd00:1::4/64")
	l.rules(t, l.host, "input",
		"ip daddr 10.0.1.4 icmp type echo-request drop", "ip6 daddr fd00:1::4 icmpv6 type echo-request drop",
		"ip daddr 10.0.1.5 reject with icmp admin-prohibited", "ip6 daddr fd00:1::5 icmpv6 type echo-request reject with icmpv6 admin-prohibited")
	l.host.AddAddr("eth0", "10.0.1.5/24")
	l.host.AddAddr("eth0", "fd00:1::5/64")
	// The router hears of a missing neighbor after one try.
	for _, family := range []string{"ipv4", "ipv6"} {
		l.router.SetSysctl("net."+family+".neigh.hosts.mcast_solicit", "1")
		l.router.SetSysctl("net."+family+".neigh.hosts.retrans_time_ms", "100")
	}
	const late = "no answer in time: context deadline exceeded"
	tests := []struct {
		name, to string
		timeout  bool // whether it ends by itself
		want     string
		is       error
	}{
		{"healthy", "10.0.1.2", false, "", nil},
		{"healthy", "fd00:1::2", false, "", nil},
		{"itself", "127.0.0.1", false, "", nil},
		{"itself", "::1", false, "", nil},
		{"slow", slow.v4, false, "", nil},
		{"slow", slow.v6, false, "", nil},
		{"silent", "10.0.1.4", true, late, context.DeadlineExceeded},
		{"silent", "fd00:1::4", true, late, context.DeadlineExceeded},
		{"refusing", "10.0.1.5", false, "administratively prohibited, says 10.0.1.5", unix.EHOSTUNREACH},
		{"refusing", "fd00:1::5", false, "administratively prohibited, says fd00:1::5", unix.EACCES},
		{"absent", "10.0.1.9", false, "host unreachable, says 10.0.0.254", unix.EHOSTUNREACH},
		{"absent", "fd00:1::9", false, "address unreachable, says fd00::fe", unix.EHOSTUNREACH},
		{"unreachable", "192.0.2.1", false, "host unreachable, says 10.0.0.254", unix.EHOSTUNREACH},
		{"unreachable", "2001:db8:1::1", false, "no route to destination, says fd00::fe", unix.ENETUNREACH},
		{"black hole", "198.51.100.1", true, late, context.DeadlineExceeded},
		{"black hole", "2001:db8:2::1", true, late, context.DeadlineExceeded},
	}
	for _, tt := range tests {
		timeout := long
		if tt.timeout {
			timeout = short
		}
		r, err := l.check(t, timeout, Check{}, tt.to)
		switch {
		case tt.want == "" && (err != nil || r.Detail != "echo reply, 56 bytes"):
			t.Errorf("%s, %s: want a reply, got %+v, %v", tt.name, tt.to, r, err)
		case tt.want != "" && (err == nil || err.Error() != "ping "+tt.to+": "+tt.want || !errors.Is(err, tt.is) || errors.Is(err, healthcheck.ErrLocal)):
			t.Errorf("%s, %s: want %q, got %v", tt.name, tt.to, tt.want, err)
		}
	}
}

// TestNetnsHops has a router for which the request has gone too far.
func TestNetnsHops(t *testing.T) {
	l := newLab(t)
	l.lb.SetSysctl("net.ipv4.ip_default_ttl", "1")
	l.lb.SetSysctl("net.ipv6.conf.eth0.hop_limit", "1")
	for to, want := range map[string]string{
		"10.0.1.2":  "ping 10.0.1.2: time to live exceeded in transit, says 10.0.0.254",
		"fd00:1::2": "ping fd00:1::2: hop limit exceeded in transit, says fd00::fe",
	} {
		if _, err := l.check(t, long, Check{}, to); err == nil || err.Error() != want {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// TestNetnsSize sends what needs fragments, here, at the router, and of the
// reply; with links that are smaller behind the router, which in IPv6 says so.
func TestNetnsSize(t *testing.T) {
	l := newLab(t)
	l.run(t, l.router, "ip", "link", "set", "hosts", "mtu", "1300")
	l.run(t, l.host, "ip", "link", "set", "eth0", "mtu", "1300")
	for _, to := range []string{"10.0.1.2", "fd00:1::2"} {
		for _, size := range []int{8, 9, 1000, 1400, 1472, 4000, MaxSize} {
			if _, err := l.check(t, long, Check{Size: size}, to); err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
	}
}

// TestNetnsVia has the request leave as it is told to.
func TestNetnsVia(t *testing.T) {
	l := newLab(t)
	l.rules(t, l.host, "input",
		"ip saddr != 10.0.0.11 drop", "icmpv6 type echo-request ip6 saddr != fd00::1 drop")
	l.rules(t, l.lb, "output",
		"icmp type echo-request meta mark != 0x7 drop", "icmpv6 type echo-request meta mark != 0x7 drop")
	for to, source := range map[string]string{"10.0.1.2": "10.0.0.11", "fd00:1::2": "fd00::1"} {
		via := healthcheck.Via{Source: netip.MustParseAddr(source), Interface: "eth0", Mark: 7}
		if _, err := l.check(t, long, Check{Via: via}, to); err != nil {
			t.Errorf("%+v: %v", via, err)
		}
		wrong := via
		wrong.Source = netip.Addr{}
		if _, err := l.check(t, short, Check{Via: wrong}, to); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v: want no answer, got %v", wrong, err)
		}
		wrong = via
		wrong.Mark = 0
		if _, err := l.check(t, short, Check{Via: wrong}, to); err == nil {
			t.Errorf("%+v: want no answer", wrong)
		}
		wrong = via
		wrong.Interface = "lo"
		if _, err := l.check(t, short, Check{Via: wrong}, to); err == nil {
			t.Errorf("%+v: want no answer", wrong)
		}
		wrong = via
		wrong.Interface = "nosuch0"
		if _, err := l.check(t, short, Check{Via: wrong}, to); !errors.Is(err, healthcheck.ErrLocal) || !errors.Is(err, unix.ENODEV) {
			t.Errorf("%+v: want a fault of this host, got %v", wrong, err)
		}
	}
}

// TestNetnsLinkLocal pings the router by its link-local address.
func TestNetnsLinkLocal(t *testing.T) {
	l := newLab(t)
	l.run(t, l.router, "ip", "addr", "add", "fe80::99/64", "dev", "lb", "nodad")
	via := healthcheck.Via{Interface: "eth0"}
	if _, err := l.check(t, long, Check{Via: via}, "fe80::99"); err != nil {
		t.Error(err)
	}
}

// TestNetnsLocal has faults of the balancer itself.
func TestNetnsLocal(t *testing.T) {
	l := newLab(t)
	l.run(t, l.lb, "ip", "route", "del", "default")
	l.run(t, l.lb, "ip", "-6", "route", "del", "default")
	for _, to := range []string{"192.0.2.1", "2001:db8:1::1"} {
		_, err := l.check(t, long, Check{}, to)
		want := "ping " + to + ": connect: network is unreachable (fault of this host)"
		if err == nil || err.Error() != want || !errors.Is(err, healthcheck.ErrLocal) || !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	gone := errors.New("namespace is gone")
	env := healthcheck.Env{Enter: func(func() error) error { return gone }}
	_, err := check(t, long, env, Check{}, "10.0.1.2")
	if !errors.Is(err, gone) || !errors.Is(err, healthcheck.ErrLocal) || strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("want the namespace's error, got %v", err)
	}
}
