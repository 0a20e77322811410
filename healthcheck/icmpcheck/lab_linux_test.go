package icmpcheck

import (
	"context"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// lab is a balancer with a router between it and a host, 10.0.1.2 and fd00:1::2.
// 10.0.1.9 and fd00:1::9 are nobody; the router calls 192.0.2.0/24 and
// 2001:db8:1::/48 unreachable and swallows what is for 198.51.100.0/24 and
// 2001:db8:2::/48.
type lab struct{ lb, router, host *netnstest.NS }

func newLab(t testing.TB) lab {
	t.Helper()
	netnstest.Require(t, "netns")
	l := lab{netnstest.New(t), netnstest.New(t), netnstest.New(t)}
	netnstest.Veth(l.lb, "eth0", l.router, "lb")
	netnstest.Veth(l.host, "eth0", l.router, "hosts")
	l.lb.AddAddr("eth0", "10.0.0.1/24")
	l.lb.AddAddr("eth0", "10.0.0.11/24")
	l.lb.AddAddr("eth0", "fd00::1/64")
	l.lb.AddAddr("eth0", "fd00::11/64")
	l.router.AddAddr("lb", "10.0.0.254/24")
	l.router.AddAddr("lb", "fd00::fe/64")
	l.router.AddAddr("hosts", "10.0.1.254/24")
	l.router.AddAddr("hosts", "fd00:1::fe/64")
	l.host.AddAddr("eth0", "10.0.1.2/24")
	l.host.AddAddr("eth0", "fd00:1::2/64")
	l.router.SetSysctl("net.ipv4.ip_forward", "1")
	l.router.SetSysctl("net.ipv6.conf.all.forwarding", "1")
	// Errors of the router are what is tested, a thousand of them at once.
	l.router.SetSysctl("net.ipv4.icmp_ratemask", "0")
	l.router.SetSysctl("net.ipv6.icmp.ratemask", "\n")
	l.lb.AddRoute("0.0.0.0/0", "10.0.0.254")
	l.lb.AddRoute("::/0", "fd00::fe")
	l.host.AddRoute("0.0.0.0/0", "10.0.1.254")
	l.host.AddRoute("::/0", "fd00:1::fe")
	// By rules, since unreachable routes have a rate limit that is the machine's.
	l.rules(t, l.router, "forward",
		"ip daddr 192.0.2.0/24 reject with icmp host-unreachable", "ip6 daddr 2001:db8:1::/48 reject with icmpv6 no-route",
		"ip daddr 198.51.100.0/24 drop", "ip6 daddr 2001:db8:2::/48 drop")
	for _, p := range []string{"192.0.2.0/24", "2001:db8:1::/48", "198.51.100.0/24", "2001:db8:2::/48"} {
		l.router.AddRouteDev(p, "hosts")
	}
	return l
}

// run runs a command in a namespace.
func (l lab) run(t testing.TB, ns *netnstest.NS, command ...string) string {
	t.Helper()
	out, err := ns.Run(exec.Command(command[0], command[1:]...))
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	return out
}

// rules adds rules to a hook of a namespace.
func (l lab) rules(t testing.TB, ns *netnstest.NS, hook string, rules ...string) {
	t.Helper()
	text := "add table inet lab; add chain inet lab " + hook + "s { type filter hook " + hook + " priority 0; }"
	for _, r := range rules {
		text += "; add rule inet lab " + hook + "s " + r
	}
	l.run(t, ns, "nft", text)
}

// check pings from the balancer.
func (l lab) check(t testing.TB, timeout time.Duration, c Check, to string) (healthcheck.Result, error) {
	t.Helper()
	return check(t, timeout, healthcheck.Env{Enter: l.lb.Do}, c, to)
}

func check(t testing.TB, timeout time.Duration, env healthcheck.Env, c Check, to string) (healthcheck.Result, error) {
	t.Helper()
	k, err := c.NewChecker(netip.AddrPortFrom(netip.MustParseAddr(to), 0), env)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	begun := time.Now()
	r, err := k.Check(ctx)
	if took := time.Since(begun); took > timeout+5*time.Second {
		t.Errorf("returned after %v, with a deadline of %v", took, timeout)
	}
	if r.Latency <= 0 {
		t.Errorf("%s: want a latency, got %+v", to, r)
	}
	return r, err
}

// The times of checks that come to an end by themselves, which a busy machine
// must not fail, and of those that do not.
const long, short = 20 * time.Second, 200 * time.Millisecond
