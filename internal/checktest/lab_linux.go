package checktest

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// Lab is a network of two namespaces: a balancer, 10.0.0.1 and fd00::1, and a
// server, 10.0.0.2 and fd00::2, that is a router too.
type Lab struct {
	Balancer, Server *netnstest.NS
}

// Addresses that nothing answers from. The router says that hosts at Unreachable
// are not, and is silent about those of BlackHole; Absent ones would be on the
// network that balancer and server share.
const (
	Unreachable4, Unreachable6 = "192.0.2.1", "2001:db8:1::1"
	BlackHole4, BlackHole6     = "198.51.100.1", "2001:db8:2::1"
	Absent4, Absent6           = "10.0.0.9", "fd00::9"
)

// NewLab makes the network. It skips the test where there are no namespaces.
func NewLab(t testing.TB) *Lab {
	t.Helper()
	netnstest.Require(t, "netns")
	l := &Lab{Balancer: netnstest.New(t), Server: netnstest.New(t)}
	netnstest.Veth(l.Balancer, "eth0", l.Server, "eth0")
	for ns, host := range map[*netnstest.NS]string{l.Balancer: "1", l.Server: "2"} {
		ns.AddAddr("eth0", "10.0.0."+host+"/24")
		ns.AddAddr("eth0", "fd00::"+host+"/64")
	}
	l.Server.SetSysctl("net.ipv4.ip_forward", "1")
	l.Server.SetSysctl("net.ipv6.conf.all.forwarding", "1")
	// All errors of a test, not one a second.
	l.Server.SetSysctl("net.ipv4.icmp_ratelimit", "0")
	l.Server.SetSysctl("net.ipv6.icmp.ratelimit", "0")
	for _, route := range []struct{ kind, prefix, via string }{
		{"unreachable", "192.0.2.0/24", "10.0.0.2"},
		{"unreachable", "2001:db8:1::/64", "fd00::2"},
		{"blackhole", "198.51.100.0/24", "10.0.0.2"},
		{"blackhole", "2001:db8:2::/64", "fd00::2"},
	} {
		l.Balancer.AddRoute(route.prefix, route.via)
		if _, err := l.Server.Run(exec.Command("ip", "route", "add", route.kind, route.prefix)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// Env has probes leave from the balancer.
func (l *Lab) Env() healthcheck.Env { return healthcheck.Env{Enter: l.Balancer.Do} }

// Resets returns how many TCP connections a namespace has reset.
func Resets(t testing.TB, ns *netnstest.NS) int {
	t.Helper()
	out, err := ns.Run(exec.Command("nstat", "-asz", "TcpOutRsts"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		var n int
		if _, err := fmt.Sscanf(line, "TcpOutRsts %d", &n); err == nil {
			return n
		}
	}
	t.Fatalf("nstat prints %q", out)
	return 0
}
