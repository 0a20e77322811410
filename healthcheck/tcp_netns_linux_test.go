package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// countSockets returns how many sockets with a local or remote port the
// namespace has in a state, such as "06" for TIME_WAIT.
func countSockets(t *testing.T, ns *netnstest.NS, state string, port uint16) int {
	t.Helper()
	count := 0
	err := ns.Do(func() error {
		for _, name := range []string{"tcp", "tcp6"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + name)
			if err != nil {
				return err
			}
			suffix := fmt.Sprintf(":%04X", port)
			for line := range strings.Lines(string(text)) {
				f := strings.Fields(line)
				if len(f) > 3 && f[3] == state && (strings.HasSuffix(f[1], suffix) || strings.HasSuffix(f[2], suffix)) {
					count++
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// trackedPair makes two namespaces with a link between them, where the first
// tracks connections.
func trackedPair(t *testing.T) (lb, server *netnstest.NS) {
	t.Helper()
	lb, server = netnstest.New(t), netnstest.New(t)
	netnstest.Veth(lb, "eth0", server, "eth0")
	for ns, host := range map[*netnstest.NS]string{lb: "1", server: "2"} {
		ns.AddAddr("eth0", "10.0.0."+host+"/24")
		ns.AddAddr("eth0", "fd00::"+host+"/64")
	}
	track := exec.Command("nft", "add table inet t; add chain inet t out { type filter hook output priority 0; }; add rule inet t out ct state new counter")
	if _, err := lb.Run(track); err != nil {
		t.Fatal(err)
	}
	return lb, server
}

// nothingLeft wants no sockets of port 80 in either namespace after n
// connections.
func nothingLeft(t *testing.T, namespaces map[string]*netnstest.NS, n int) {
	t.Helper()
	for name, ns := range namespaces {
		for state, code := range map[string]string{"TIME_WAIT": "06", "ESTABLISHED": "01", "CLOSE_WAIT": "08", "SYN_RECV": "03"} {
			// A few may have been established, and lie in the queue of the
			// listener, because this process was slow.
			if got := countSockets(t, ns, code, 80); got > 10 {
				t.Errorf("%s: %d sockets in %s after %d connections", name, got, state, n)
			}
		}
	}
}

// trackedConnections counts what the namespace has tracked of port 80: closed
// connections that are gone within 10 s, and others.
func trackedConnections(t *testing.T, ns *netnstest.NS) (closed, other int, text string) {
	t.Helper()
	var all strings.Builder
	for _, family := range []string{"ipv4", "ipv6"} {
		out, err := ns.Run(exec.Command("conntrack", "-L", "-f", family, "-p", "tcp", "--dport", "80"))
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(out)
	}
	for line := range strings.Lines(all.String()) {
		var timeout int
		f := strings.Fields(line)
		if len(f) < 4 {
			t.Fatalf("conntrack prints %q", line)
		}
		if _, err := fmt.Sscan(f[2], &timeout); err != nil {
			t.Fatalf("conntrack prints %q", line)
		}
		if f[3] == "CLOSE" && timeout <= 10 {
			closed++
		} else {
			other++
		}
	}
	return closed, other, all.String()[:min(all.Len(), 500)]
}

// TestNetnsTCPLeavesNothing probes from one namespace into another, with a
// firewall that tracks connections between them, and looks at what is left:
// no TIME_WAIT on either side, and no assured or long-lived tracked connection.
func TestNetnsTCPLeavesNothing(t *testing.T) {
	netnstest.Require(t, "netns")
	lb, server := trackedPair(t)
	const n = 500
	for _, address := range []string{"10.0.0.2:80", "[fd00::2]:80"} {
		server.Listen("tcp", address)
		to := netip.MustParseAddrPort(address)
		for range n {
			if _, err := check(t, t.Context(), to, Env{Enter: lb.Do}); err != nil {
				t.Fatalf("%s: %v", address, err)
			}
		}
	}
	nothingLeft(t, map[string]*netnstest.NS{"balancer": lb, "server": server}, 2*n)
	closed, other, text := trackedConnections(t, lb)
	// Entries older than 10 s are gone already on a slow machine.
	if closed == 0 || other > 10 || strings.Count(text, "[ASSURED]") > 0 {
		t.Errorf("want tracked connections closed, not assured and gone in 10 s; got %d such and %d others:\n%s", closed, other, text)
	}
}

// TestNetnsTCPSelf makes the kernel choose the target's port for the probe
// itself, which connects it to itself although nobody listens.
func TestNetnsTCPSelf(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	ns.SetSysctl("net.ipv4.ip_local_port_range", "40001 40001")
	for _, ip := range loopbacks {
		to := netip.AddrPortFrom(netip.MustParseAddr(ip), 40001)
		_, err := check(t, t.Context(), to, Env{Enter: ns.Do})
		if !errors.Is(err, unix.ECONNREFUSED) || !strings.Contains(err.Error(), "the probe met itself") {
			t.Errorf("%s: want a refused connection, got %v", ip, err)
		}
	}
}

// TestNetnsTCPLocal has every fault of the own host count as a failed check that
// says so.
func TestNetnsTCPLocal(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	ns.SetSysctl("net.ipv4.ip_local_port_range", "40001 40001")
	ln := ns.Listen("tcp", "127.0.0.1:80")
	// This one holds the only port there is.
	conn, err := ns.DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tests := []struct {
		target string
		want   error
		text   string
	}{
		{"127.0.0.1:80", unix.EADDRNOTAVAIL, "connect 127.0.0.1:80: connect: cannot assign requested address: no free local port or address (fault of this host)"},
		{"192.0.2.1:80", unix.ENETUNREACH, "connect 192.0.2.1:80: connect: network is unreachable (fault of this host)"},
		{"[2001:db8::1]:80", unix.ENETUNREACH, "connect [2001:db8::1]:80: connect: network is unreachable (fault of this host)"},
	}
	for _, tt := range tests {
		_, err := check(t, t.Context(), netip.MustParseAddrPort(tt.target), Env{Enter: ns.Do})
		if err == nil || err.Error() != tt.text || !errors.Is(err, tt.want) || !errors.Is(err, ErrLocal) {
			t.Errorf("%s: want %q, got %v", tt.target, tt.text, err)
		}
	}
}

// TestNetnsTCPUnreachable has faults that are not the host's own: a router's
// answer, and none at all.
func TestNetnsTCPUnreachable(t *testing.T) {
	netnstest.Require(t, "netns")
	lb, router := netnstest.New(t), netnstest.New(t)
	netnstest.Veth(lb, "eth0", router, "eth0")
	lb.AddAddr("eth0", "10.0.0.1/24")
	router.AddAddr("eth0", "10.0.0.254/24")
	router.SetSysctl("net.ipv4.ip_forward", "1")
	lb.AddRoute("192.0.2.0/24", "10.0.0.254")
	lb.AddRoute("198.51.100.0/24", "10.0.0.254")
	if _, err := router.Run(exec.Command("ip", "route", "add", "blackhole", "198.51.100.0/24")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := check(t, ctx, netip.MustParseAddrPort("192.0.2.1:80"), Env{Enter: lb.Do})
	// The kernel makes a router's "net unreachable" of a connection ENETUNREACH.
	if !errors.Is(err, unix.ENETUNREACH) || errors.Is(err, ErrLocal) {
		t.Errorf("router says unreachable: got %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := check(t, ctx, netip.MustParseAddrPort("198.51.100.1:80"), Env{Enter: lb.Do}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("black hole: got %v", err)
	}
}

// TestNetnsMonitorTCP runs the whole of it against a real server that dies and
// comes back.
func TestNetnsMonitorTCP(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	changes := make(chan Change, 10)
	m := New(Options{Env: Env{Enter: ns.Do}, Notify: func(c Change) { changes <- c }})
	ln := ns.Listen("tcp", "127.0.0.1:80")
	timing := Timing{Interval: 50 * time.Millisecond, Timeout: 50 * time.Millisecond, Rise: 2, Fall: 2}
	if err := m.Set([]Probe{{Method: TCP{}, Target: netip.MustParseAddrPort("127.0.0.1:80"), Timing: timing}}); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	want := func(s State) {
		t.Helper()
		select {
		case c := <-changes:
			if c.State != s {
				t.Fatalf("want %v, got %v: %v", s, c.State, c.LastErr)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("want %v, got nothing for 10 s", s)
		}
	}
	want(Up)
	ln.Close()
	want(Down)
	ns.Listen("tcp", "127.0.0.1:80")
	want(Up)
}
