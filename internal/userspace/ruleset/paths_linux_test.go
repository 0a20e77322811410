package ruleset

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/expect"
	"github.com/lbd-project/lbd/healthcheck/tcpcheck"
	"github.com/lbd-project/lbd/healthcheck/udpcheck"
	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/userspace/tunnel"
)

// pathLab is a balancer and real servers on one network. Of the servers, "good" has
// the service's addresses, "bare" lacks them, and "shut" has them but listens on its
// own addresses alone.
type pathLab struct {
	t       *testing.T
	lb      *netnstest.NS
	servers map[string]*netnstest.NS
	paths   *Paths
	wanted  []PathKey
}

var pathServers = map[string]int{"good": 10, "bare": 11, "shut": 12}

const (
	pathVIP4 = "198.51.100.100"
	pathVIP6 = "2001:db8:1::100"
)

func pathServer(name string, six bool) netip.Addr {
	if six {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8:1::%d", pathServers[name]))
	}
	return netip.MustParseAddr(fmt.Sprintf("198.51.100.%d", pathServers[name]))
}

func newPathLab(t *testing.T, tunnels bool) *pathLab {
	t.Helper()
	netnstest.Require(t, "netns")
	l := &pathLab{t: t, lb: netnstest.New(t), servers: map[string]*netnstest.NS{}}
	hub := netnstest.New(t)
	join := func(ns *netnstest.NS, name string, host int) {
		netnstest.Veth(ns, "eth0", hub, name)
		ns.AddAddr("eth0", fmt.Sprintf("198.51.100.%d/24", host))
		ns.AddAddr("eth0", fmt.Sprintf("2001:db8:1::%d/64", host))
	}
	join(l.lb, "lb", 1)
	l.lb.SetSysctl("net.ipv4.conf.all.rp_filter", "1")
	l.lb.AddAddr("lo", pathVIP4+"/32")
	l.lb.AddAddr("lo", pathVIP6+"/128")
	ports := []string{"lb"}
	for name, host := range pathServers {
		s := netnstest.New(t)
		s.SetSysctl("net.ipv4.conf.all.arp_ignore", "1")
		s.SetSysctl("net.ipv4.conf.all.arp_announce", "2")
		join(s, name, host)
		ports = append(ports, name)
		l.servers[name] = s
		if name != "bare" {
			s.AddAddr("lo", pathVIP4+"/32")
			s.AddAddr("lo", pathVIP6+"/128")
		}
		if tunnels {
			s.Unwrap()
		}
		for _, six := range []bool{false, true} {
			l.listen(s, netip.AddrPortFrom(pathServer(name, six), 80).String(), name)
			if name == "good" {
				l.listen(s, net.JoinHostPort(map[bool]string{false: pathVIP4, true: pathVIP6}[six], "80"), name)
			}
		}
	}
	hub.AddBridge("br0", ports...)
	// What a careful operator has, and the tables of all else.
	l.nft(l.lb, `table inet strict {
	chain inputs { type filter hook input priority 0; policy drop
		ct state established,related accept
		icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
	}
	chain forwards { type filter hook forward priority 0; policy drop
	}
	chain outputs { type filter hook output priority 0; policy accept
		ct state invalid drop
	}
}`)
	l.paths = OpenPaths(PathOptions{NetNS: l.lb.FD()})
	t.Cleanup(func() {
		if err := l.paths.Close(); err != nil {
			t.Error(err)
		}
	})
	for name := range pathServers {
		for _, six := range []bool{false, true} {
			l.wanted = append(l.wanted, l.key(name, six, tunnels))
		}
	}
	return l
}

// listen answers "hello NAME" to whoever connects, and what it gets to a datagram.
func (l *pathLab) listen(s *netnstest.NS, address, name string) {
	tcp := s.Listen("tcp", address)
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 64<<10)
				for n := 0; n < 4000; {
					m, err := c.Read(buf)
					if err != nil {
						return
					}
					n += m
				}
				fmt.Fprintf(c, "hello %s", name)
				c.Read(buf)
			}()
		}
	}()
	udp := s.ListenPacket("udp", address)
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			udp.WriteTo(buf[:n], from)
		}
	}()
	l.t.Cleanup(func() { tcp.Close(); udp.Close() })
}

func (l *pathLab) nft(ns *netnstest.NS, script string) {
	l.t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := ns.Run(cmd); err != nil {
		l.t.Fatalf("nft: %v: %s", err, out)
	}
}

func (l *pathLab) list(args ...string) string {
	l.t.Helper()
	out, err := l.lb.Run(exec.Command(args[0], args[1:]...))
	if err != nil {
		l.t.Fatalf("%v: %v: %s", args, err, out)
	}
	return out
}

func (l *pathLab) key(name string, six, tunnels bool) PathKey {
	vip := netip.MustParseAddr(pathVIP4)
	if six {
		vip = netip.MustParseAddr(pathVIP6)
	}
	return PathKey{healthcheck.Through{Service: vip, Tunnel: tunnels}, pathServer(name, six)}
}

func (l *pathLab) set(keys ...PathKey) {
	l.t.Helper()
	if err := l.paths.Set(l.t.Context(), keys); err != nil {
		l.t.Fatal(err)
	}
}

// pathMethods are checks that carry more than one packet of TCP can, and a datagram.
func pathMethods() map[string]healthcheck.Method {
	hello := expect.Expect{Kind: expect.Text, Value: "hello good"}
	ping := expect.Expect{Kind: expect.Text, Value: "ping"}
	return map[string]healthcheck.Method{
		"tcp":  healthcheck.TCP{},
		"talk": tcpcheck.Check{Steps: []tcpcheck.Step{{Send: make([]byte, 4000), Expect: hello}}},
		"udp":  udpcheck.Check{Payload: []byte("ping"), Expect: ping, RequireReply: true},
	}
}

// check makes one check.
func (l *pathLab) check(m healthcheck.Method, k PathKey, timeout time.Duration) error {
	env := healthcheck.Env{Enter: l.lb.Do, Through: k.Through, Paths: l.paths}
	c, err := m.NewChecker(netip.AddrPortFrom(k.Server, 80), env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), timeout)
	defer cancel()
	_, err = c.Check(ctx)
	return err
}

// patient is for what must succeed, brief for what gets no answer.
const (
	patient = 20 * time.Second
	brief   = time.Second
)

func testPaths(t *testing.T, tunnels bool) {
	l := newPathLab(t, tunnels)
	if err := l.paths.Able(tunnels); err != nil {
		t.Fatal(err)
	}
	routes := l.list("ip", "route") + l.list("ip", "-6", "route")
	rules := l.list("ip", "rule")
	tables := l.list("nft", "list", "ruleset")
	l.set(l.wanted...)
	for name, m := range pathMethods() {
		for _, six := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s six=%v", name, six), func(t *testing.T) {
				l := *l
				l.t = t
				good, bare, shut := l.key("good", six, tunnels), l.key("bare", six, tunnels), l.key("shut", six, tunnels)
				if err := l.check(m, good, patient); err != nil {
					t.Errorf("server with the address: %v", err)
				}
				// Its own address answers, and nobody asks it.
				err := l.check(m, bare, brief)
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "has it the address") && name != "udp" {
					t.Errorf("server without the address: want no answer in time, got %v", err)
				}
				if want := netip.AddrPortFrom(good.Service, 80).String(); name != "udp" && !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("want %s in %v", want, err)
				}
				err = l.check(m, shut, map[bool]time.Duration{true: brief, false: patient}[name == "udp"])
				if err == nil || name != "udp" && !strings.Contains(err.Error(), "refused") {
					t.Errorf("server that does not listen on the address: want it refused, got %v", err)
				}
				if name != "tcp" {
					return
				}
				if err := l.check(m, PathKey{Server: bare.Server}, patient); err != nil {
					t.Errorf("own address of the server without the service's: %v", err)
				}
			})
		}
	}
	l.set()
	if got := l.list("ip", "route") + l.list("ip", "-6", "route"); got != routes {
		t.Errorf("routes: want\n%s\ngot\n%s", routes, got)
	}
	if got := l.list("ip", "rule"); got != rules {
		t.Errorf("routing rules: want\n%s\ngot\n%s", rules, got)
	}
	if got := l.list("nft", "list", "ruleset"); got != tables {
		t.Errorf("tables: want\n%s\ngot\n%s", tables, got)
	}
	if err := l.check(healthcheck.TCP{}, l.wanted[0], patient); !errors.Is(err, healthcheck.ErrLocal) {
		t.Errorf("without paths: want a fault of this host, got %v", err)
	}
}

func TestNetnsPathsRoute(t *testing.T)  { testPaths(t, false) }
func TestNetnsPathsTunnel(t *testing.T) { testPaths(t, true) }

// TestNetnsPathsBrokenTunnel takes the other end of a tunnel away.
func TestNetnsPathsBrokenTunnel(t *testing.T) {
	l := newPathLab(t, false) // nobody unwraps
	k := l.key("good", false, true)
	away := PathKey{k.Through, netip.MustParseAddr("203.0.113.9")}
	l.set(k, away)
	if err := l.check(healthcheck.TCP{}, k, brief); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "in the tunnel to 198.51.100.10") {
		t.Errorf("want no answer in time, got %v", err)
	}
	if err := l.check(healthcheck.TCP{}, away, patient); !errors.Is(err, healthcheck.ErrLocal) || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("want no route to the tunnel's end, got %v", err)
	}
	// The way comes up later, and goes with its device.
	l.lb.AddRoute("203.0.113.0/24", "198.51.100.10")
	l.keep()
	if err := l.check(healthcheck.TCP{}, away, brief); errors.Is(err, healthcheck.ErrLocal) || err == nil {
		t.Errorf("with a route: want no answer, got %v", err)
	}
	l.list("ip", "route", "del", tunnel.Checks.Gateway(false).String())
	l.keep()
	if got := l.list("ip", "route"); !strings.Contains(got, tunnel.Checks.Gateway(false).String()) {
		t.Errorf("want the route into tunnels back in\n%s", got)
	}
}

// TestNetnsPathsLocal has a real server that is the balancer itself. Packets with the
// service's address would be those of a client there: an engine would send them to
// another real server, and count them.
func TestNetnsPathsLocal(t *testing.T) {
	l := newPathLab(t, false)
	l.nft(l.lb, `insert rule inet strict inputs iif lo accept
table inet engine {
	counter balanced { }
	chain in { type filter hook prerouting priority -190
		iif lo ip daddr `+pathVIP4+` counter name balanced drop
		iif lo ip6 daddr `+pathVIP6+` counter name balanced drop
	}
}`)
	for _, tunnels := range []bool{false, true} {
		for _, six := range []bool{false, true} {
			k := l.key("good", six, tunnels)
			k.Server = netip.MustParseAddr(map[bool]string{false: "198.51.100.1", true: "2001:db8:1::1"}[six])
			if !tunnels {
				l.listen(l.lb, netip.AddrPortFrom(k.Server, 80).String(), "good")
			}
			l.set(k)
			for name, m := range pathMethods() {
				if err := l.check(m, k, patient); err != nil {
					t.Errorf("%s by %v, tunnel=%v: %v", name, k.Server, tunnels, err)
				}
			}
		}
	}
	if out := l.list("nft", "list", "counter", "inet", "engine", "balanced"); !strings.Contains(out, "packets 0 ") {
		t.Errorf("want no packet of a check balanced, got\n%s", out)
	}
}

func (l *pathLab) keep() {
	l.t.Helper()
	if err := l.paths.Keep(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// TestNetnsPathsParallel makes many checks of many real servers at once, through
// services of one port. Answers that were mixed up would fail the checks of good or
// pass those of bare.
func TestNetnsPathsParallel(t *testing.T) {
	l := newPathLab(t, false)
	l.set(l.wanted...)
	m := pathMethods()
	var wg sync.WaitGroup
	for i := range 300 {
		method := m[[]string{"tcp", "talk", "udp"}[i%3]]
		wg.Go(func() {
			if err := l.check(method, l.key("good", i%2 == 0, false), patient); err != nil {
				t.Errorf("good: %v", err)
			}
		})
		wg.Go(func() {
			if err := l.check(method, l.key("bare", i%2 == 0, false), brief); err == nil {
				t.Errorf("bare: want an error")
			}
		})
	}
	wg.Wait()
	// A plain check ends with a RST, which takes its element along.
	out := l.list("nft", "list", "map", "ip", pathTableName, mapPathAnswers)
	if n := len(regexp.MustCompile(`: 198\.51\.100\.10\b`).FindAllString(out, -1)); n < 50 || n > 110 {
		t.Errorf("want the elements of some 100 conversations, got %d", n)
	}
	if !strings.Contains(out, fmt.Sprintf("size %d", maxPathAnswers)) || !strings.Contains(out, "timeout 1m5s") {
		t.Errorf("want a bounded map, got %.300s", out)
	}
}

// TestNetnsPathsAtOnce wants first packets to be answered: a real server that answers
// before connection tracking has confirmed the connection would be met by silence, and
// asked again a second later.
func TestNetnsPathsAtOnce(t *testing.T) {
	l := newPathLab(t, false)
	l.set(l.wanted...)
	for i := range 100 {
		if err := l.check(healthcheck.TCP{}, l.key("good", i%2 == 0, false), patient); err != nil {
			t.Fatal(err)
		}
	}
	lines := regexp.MustCompile(`(?m)^Tcp: (.*)$`).FindAllStringSubmatch(l.list("cat", "/proc/net/snmp"), 2)
	if len(lines) != 2 {
		t.Fatalf("no counters of TCP: %v", lines)
	}
	i := slices.Index(strings.Fields(lines[0][1]), "RetransSegs")
	n, err := strconv.Atoi(strings.Fields(lines[1][1])[i])
	if err != nil {
		t.Fatal(err)
	}
	// A neighbour's address may take its time.
	if n > 10 {
		t.Errorf("want (nearly) no segments sent again, got %d of 100", n)
	}
}

// TestNetnsPathsRepair lets others flush, change and delete what is Paths', also right
// before the paths are set, as they were or others.
func TestNetnsPathsRepair(t *testing.T) {
	l := newPathLab(t, false)
	good, bare := l.key("good", false, false), l.key("bare", false, false)
	l.set(good, bare)
	for _, test := range []struct {
		hurt string
		set  []PathKey
	}{
		{hurt: "flush ruleset"},
		{"flush ruleset", []PathKey{good, bare}},
		{"flush ruleset", []PathKey{bare}},
		{hurt: "delete table ip lbd_checks"},
		{hurt: "flush chain ip lbd_checks checks_output"},
		{hurt: "insert rule ip lbd_checks checks_output accept"},
		{hurt: "flush map ip lbd_checks services"},
		{hurt: "table ip lbd_checks { flags dormant; }"},
	} {
		l.nft(l.lb, test.hurt)
		if test.set != nil {
			l.set(test.set...)
			l.set(good, bare)
		}
		l.keep()
		if err := l.check(healthcheck.TCP{}, good, patient); err != nil {
			t.Errorf("after %q and %d set: %v", test.hurt, len(test.set), err)
		}
		if err := l.check(healthcheck.TCP{}, bare, brief); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %q and %d set: server without the address: want no answer in time, got %v", test.hurt, len(test.set), err)
		}
	}
	// What others do to theirs changes nothing, also of elements learned.
	l.nft(l.lb, "add element ip lbd_checks answers { 192.0.2.1 . 192.0.2.2 . tcp . 7 . 7 : 192.0.2.3 }")
	l.nft(l.lb, "table ip other { }")
	l.keep()
	if out := l.list("nft", "list", "map", "ip", pathTableName, mapPathAnswers); !strings.Contains(out, "192.0.2.3") {
		t.Error("the table was written again without a need")
	}
	// A path that goes leaves the other as it is.
	l.set(good)
	if out := l.list("nft", "list", "map", "ip", pathTableName, mapPathAnswers); !strings.Contains(out, "192.0.2.3") {
		t.Error("the table was written again to delete a path")
	}
	if err := l.check(healthcheck.TCP{}, good, patient); err != nil {
		t.Error(err)
	}
	// What an earlier process left does not disturb, and can be removed.
	again := OpenPaths(PathOptions{NetNS: l.lb.FD()})
	defer again.Close()
	if left, err := again.Left(); !left || err != nil {
		t.Errorf("left: want true, got %v, %v", left, err)
	}
	l.paths = again
	l.set(good, bare)
	if err := l.check(healthcheck.TCP{}, good, patient); err != nil {
		t.Error(err)
	}
	if err := OpenPaths(PathOptions{NetNS: l.lb.FD()}).Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := again.Left(); left || err != nil {
		t.Errorf("left: want false, got %v, %v", left, err)
	}
}

// TestNetnsPathsKept asks, of a success while the rules were gone, whether it is one.
func TestNetnsPathsKept(t *testing.T) {
	l := newPathLab(t, false)
	bare := l.key("bare", false, false)
	l.set(bare)
	kept := func(what string, since time.Time, want bool) {
		t.Helper()
		if err := l.paths.Kept(since); (err == nil) != want {
			t.Errorf("%s: want kept: %v, got %v", what, want, err)
		}
	}
	before := time.Now()
	kept("nothing happened", before, true)
	l.nft(l.lb, "table ip other { }")
	kept("others write theirs", before, true)
	l.nft(l.lb, "flush ruleset")
	if err := l.check(healthcheck.TCP{}, bare, patient); err != nil {
		t.Errorf("without rules, the own address: %v", err)
	}
	kept("the rules are gone", before, false)
	after := time.Now()
	kept("they are back, for a check from before", before, false)
	kept("they are back", after, true)
	if err := l.check(healthcheck.TCP{}, bare, brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with the rules: want no answer in time, got %v", err)
	}
	l.nft(l.lb, "flush ruleset")
	l.keep()
	kept("they were put back meanwhile", after, false)
	l.nft(l.lb, "flush ruleset")
	l.paths.known = false // they could not be put back, and then they are set
	after = time.Now()
	l.set(bare)
	kept("they were set meanwhile", after, false)
}

// TestNetnsPathsKeptInterrupted has others write all the time, so that the list of
// chains is not read to its end: whether the rules were kept is not known then.
func TestNetnsPathsKeptInterrupted(t *testing.T) {
	l := newPathLab(t, false)
	l.set(l.key("bare", false, false))
	before := time.Now()
	var many strings.Builder
	for i := range 2000 { // a list of some ten parts
		fmt.Fprintf(&many, "add chain ip other a_chain_with_a_rather_long_name_%d\n", i)
	}
	l.nft(l.lb, "add table ip other\n"+many.String())
	busy := &nftables.Table{Name: "busy", Family: nftables.TableFamilyIPv4}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	halt := sync.OnceFunc(func() { close(stop); writer.Wait() })
	defer halt()
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			err := l.paths.transaction(func(nft *nftables.Conn) error {
				nft.AddTable(busy)
				nft.DelTable(busy)
				return nil
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	var err error
	for begun := time.Now(); err == nil && time.Since(begun) < 20*time.Second; {
		l.keep() // that others write is no fault
		err = l.paths.Kept(before)
	}
	halt()
	if !errors.Is(err, errInterrupted) {
		t.Errorf("while others write: want %q, got %v", errInterrupted, err)
	}
	if err := l.paths.Kept(before); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestPathNumbers gives numbers of paths that went as late as possible.
func TestPathNumbers(t *testing.T) {
	key := func(i int) PathKey {
		return PathKey{healthcheck.Through{Service: netip.MustParseAddr(pathVIP4)}, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}
	}
	p := OpenPaths(PathOptions{})
	var err error
	if p.numbers, err = p.number([]PathKey{key(1), key(2), key(1)}); err != nil || len(p.numbers) != 2 {
		t.Fatalf("want 2 numbers, got %v, %v", p.numbers, err)
	}
	kept := p.numbers[key(2)]
	p.last = pathNumber
	if p.numbers, err = p.number([]PathKey{key(2), key(3), key(4)}); err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for _, n := range p.numbers {
		if n == 0 || n > pathNumber || seen[n] {
			t.Errorf("number %d", n)
		}
		seen[n] = true
	}
	if p.numbers[key(2)] != kept || seen[1] {
		t.Errorf("want path 2 to keep its number and 1 to rest, got %v", p.numbers)
	}
	var all []PathKey
	for i := range maxPaths + 1 {
		all = append(all, key(i))
	}
	if _, err := p.number(all); err == nil {
		t.Error("want too many paths refused")
	}
}
