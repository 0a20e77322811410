package ruleset

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// passive is bothVersions with one real server for each version, and Passive where
// it is asked for; TCP and UDP share its mark.
func passive(on bool) Spec {
	s := bothVersions()
	for i := range s.Services {
		v := &s.Services[i]
		v.Passive = on
		v.Fallback = v.Fallback[1:]
		s.Servers[v.Fallback[0].Mark>>8-1].Service = v.ID
	}
	return s
}

// begun is how flows began.
type begun struct{ Tried, Answered, Reset, Unreachable, UnreachableUDP, Withdrawn uint64 }

// handshakes is what the rules counted, of the real servers that are used.
func (l *lab) handshakes() begun {
	l.t.Helper()
	var got begun
	err := l.rules.Handshakes(func(m uint32, k Handshake, n uint64) {
		*map[Handshake]*uint64{
			Tried: &got.Tried, Answered: &got.Answered, Reset: &got.Reset, Unreachable: &got.Unreachable, Withdrawn: &got.Withdrawn,
			UnreachableUDP: &got.UnreachableUDP,
		}[k] += n
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return got
}

// waitHandshakes waits for what may be on its way, and returns what the rules
// counted by then.
func (l *lab) waitHandshakes(want begun) (got begun) {
	l.t.Helper()
	for end := time.Now().Add(waitTime); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got = l.handshakes(); got == want {
			break
		}
	}
	return got
}

// try opens a connection and closes it; it waits for a second at most.
func (l *lab) try(from *netnstest.NS, addr string, control func(fd int) error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
	defer cancel()
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if control != nil {
			c.Control(func(fd uintptr) { err = control(int(fd)) })
		}
		return err
	}}
	err := from.Do(func() error {
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			c.Close()
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// onServers gives the real servers rules.
func (l *lab) onServers(rules string) {
	l.t.Helper()
	for _, s := range l.servers {
		nft(l.t, l.rulesOf(s), "table inet server { chain in { type filter hook input priority 0; "+rules+"; }; }")
	}
}

// hops is how far the client's packets go when they come to the balancer.
func hops(n int) func(fd int) error {
	return func(fd int) error {
		if unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, n) == nil {
			return nil
		}
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, n)
	}
}

// TestNetnsHandshakes counts what becomes of the first packet of a connection, once
// for each, whatever the client does.
func TestNetnsHandshakes(t *testing.T) {
	syn := "tcp flags & (syn|ack) == syn "
	for _, test := range []struct {
		name, rules string
		do          func(l *lab, addr string)
		want        begun // for each of two addresses
	}{
		{"answered", "accept", func(l *lab, addr string) { l.try(l.client, addr, nil) }, begun{Tried: 1, Answered: 1}},
		{"answered a local client", "accept", func(l *lab, addr string) { l.try(l.lb, addr, nil) }, begun{Tried: 1, Answered: 1}},
		{"far enough", "accept", func(l *lab, addr string) { l.try(l.client, addr, hops(leastHops+2)) }, begun{Tried: 1, Answered: 1}},
		{"black hole", syn + "drop", func(l *lab, addr string) { l.try(l.client, addr, nil) }, begun{Tried: 1}},
		{"reset", syn + "reject with tcp reset", func(l *lab, addr string) { l.try(l.client, addr, nil) }, begun{Tried: 1, Reset: 1}},
		{"reset of a local client", syn + "reject with tcp reset", func(l *lab, addr string) { l.try(l.lb, addr, nil) }, begun{Tried: 1, Reset: 1}},
		{"port unreachable", syn + "reject with icmpx port-unreachable", func(l *lab, addr string) { l.try(l.client, addr, nil) },
			begun{Tried: 1, Unreachable: 1}},
		{"host unreachable", syn + "reject with icmpx host-unreachable", func(l *lab, addr string) { l.try(l.client, addr, nil) },
			begun{Tried: 1, Unreachable: 1}},
		{"prohibited", syn + "reject with icmpx admin-prohibited", func(l *lab, addr string) { l.try(l.client, addr, nil) },
			begun{Tried: 1, Unreachable: 1}},
		{"too few hops", syn + "drop", func(l *lab, addr string) { l.try(l.client, addr, hops(leastHops+1)) }, begun{}},
		{"client resets and floods", "accept", func(l *lab, addr string) {
			for range 20 {
				c, err := l.client.DialContext(l.t.Context(), "tcp", addr)
				if err != nil {
					l.t.Fatal(err)
				}
				c.(*net.TCPConn).SetLinger(0)
				c.Close()
			}
		}, begun{Tried: 20, Answered: 20}},
		{"server resets later", "accept", func(l *lab, addr string) {
			c, err := l.client.DialContext(l.t.Context(), "tcp", addr)
			if err != nil {
				l.t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(waitTime))
			c.Read(make([]byte, 1))
			l.abort(l.servers[1])
			if _, err := c.Read(make([]byte, 1)); err == nil {
				l.t.Error("no reset")
			}
			c.Close()
		}, begun{Tried: 1, Answered: 1}},
		{"datagrams", "accept", func(l *lab, addr string) {
			if _, err := l.ask(l.client, "udp", addr); err != nil {
				l.t.Fatal(err)
			}
		}, begun{}},
		{"datagrams to a closed port", "udp dport 8080 reject", func(l *lab, addr string) { l.ask(l.client, "udp", addr) },
			begun{UnreachableUDP: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			eachWay(t, Options{}, passive(true), func(t *testing.T, l *lab) {
				l.onServers(test.rules)
				for _, addr := range addresses {
					test.do(l, addr)
				}
				n := uint64(len(addresses))
				w := test.want
				want := begun{n * w.Tried, n * w.Answered, n * w.Reset, n * w.Unreachable, n * w.UnreachableUDP, n * w.Withdrawn}
				if got := l.waitHandshakes(want); got != want {
					t.Errorf("(-want +got)\n%s", cmp.Diff(want, got))
				}
				if ok, err := l.rules.Intact(t.Context()); !ok || err != nil {
					t.Errorf("intact: %v, %v", ok, err)
				}
				// The bit is for those that wait alone.
				waiting := l.flows(func(e *conntrack.Event) bool { return e.Mark&l.rules.opts.Tried() != 0 })
				if unanswered := want.Tried - want.Answered - want.Reset - want.Unreachable; uint64(len(waiting)) != unanswered {
					t.Errorf("want %d connections that wait, got %+v", unanswered, waiting)
				}
			})
		})
	}
}

// rawSYN sends the first segment of a connection over IPv4, with options.
func (l *lab) rawSYN(port uint16, ip, tcp []byte) {
	l.t.Helper()
	l.rawSegment(port, 1, tcpSYN, ip, tcp)
}

// rawSegment sends a segment over IPv4, with options.
func (l *lab) rawSegment(port uint16, seq uint32, flags byte, ip, tcp []byte) {
	l.t.Helper()
	dst := [4]byte{192, 0, 2, 1}
	tu := flow.New4(protoTCP, [4]byte{198, 51, 100, 2}, dst, port, 80)
	b := segmentOf(&tu, seq, flags, tcp...)
	err := l.client.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if len(ip) > 0 {
			if err := unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, string(ip)); err != nil {
				return err
			}
		}
		return unix.Sendto(fd, b, 0, &unix.SockaddrInet4{Addr: dst})
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// TestNetnsHandshakesOdd sends first segments that a real server may not answer
// although it is well: they do not count.
func TestNetnsHandshakesOdd(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(passive(true))
	nft(t, l.rulesOf(l.client), "table inet seen { chain in { type filter hook input priority 0; tcp sport 80 counter name answers; }; counter answers {}; }")
	md5 := append([]byte{19, 18}, make([]byte, 18)...)
	ao := append([]byte{29, 16}, make([]byte, 14)...)
	// The token is of no connection.
	join := []byte{30, 12, 0x10, 1, 1, 2, 3, 4, 5, 6, 7, 8}
	malformed := append([]byte{99, 0}, make([]byte, 18)...)
	for i, options := range []struct{ ip, tcp []byte }{{nil, md5}, {nil, ao}, {nil, join}, {nil, malformed}, {[]byte{1, 1, 1, 0}, nil}, {nil, []byte{2, 4, 5, 180}}} {
		port := uint16(5000 + i)
		before := l.counterOf(l.client, "seen", "answers")
		l.rawSYN(port, options.ip, options.tcp)
		if options.ip == nil && bytes.Equal(options.tcp, join) {
			// A reset leaves no entry.
			for end := time.Now().Add(waitTime); l.counterOf(l.client, "seen", "answers") == before; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("who joins no connection gets no answer")
				}
			}
			continue
		}
		l.flowOf(&net.TCPAddr{Port: int(port), IP: net.IPv4zero}, every)
	}
	want := begun{Tried: 1, Answered: 1}
	if got := l.waitHandshakes(want); got != want {
		t.Errorf("only a plain segment counts (-want +got)\n%s", cmp.Diff(want, got))
	}
}

// TestNetnsHandshakesOptions counts connections of Linux with all its options.
func TestNetnsHandshakesOptions(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(passive(true))
	for i := range 8 {
		for bit, name := range []string{"timestamps", "sack", "window_scaling"} {
			l.client.SetSysctl("net.ipv4.tcp_"+name, fmt.Sprint(i>>bit&1))
		}
		for _, addr := range addresses {
			l.try(l.client, addr, nil)
		}
		n := uint64(len(addresses) * (i + 1))
		want := begun{Tried: n, Answered: n}
		if got := l.waitHandshakes(want); got != want {
			t.Fatalf("options %03b (-want +got)\n%s", i, cmp.Diff(want, got))
		}
	}
}

// TestNetnsHandshakesFlood has a client that never finishes what it begins: it sends
// first segments alone, and either resets what is answered, or is silent until the
// real server has sent its answer again. Each counts as answered, once.
func TestNetnsHandshakesFlood(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent %v", silent), func(t *testing.T) {
			l := newLab(t, Options{FailOpen: true})
			l.apply(passive(true))
			if silent {
				nft(t, l.rulesOf(l.client), "table inet mute { chain in { type filter hook input priority 0; tcp sport 80 counter name answers drop; }; counter answers {}; }")
			}
			const n = 50
			for i := range n {
				l.rawSYN(uint16(5000+i), nil, nil)
			}
			answers := 0
			for end := time.Now().Add(waitTime); silent && time.Now().Before(end) && answers <= n; time.Sleep(5 * time.Millisecond) {
				answers = l.counterOf(l.client, "mute", "answers")
			}
			want := begun{Tried: n, Answered: n}
			got := l.waitHandshakes(want)
			if got != want || silent && answers <= n {
				t.Errorf("%d answers (-want +got)\n%s", answers, cmp.Diff(want, got))
			}
		})
	}
}

// TestNetnsHandshakesWithdrawn has a client reset what it began before the real
// server has answered, so that connection tracking forgets it: that says nothing.
// The real server's answers get lost until then.
func TestNetnsHandshakesWithdrawn(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(passive(true))
	for _, s := range l.servers {
		nft(t, l.rulesOf(s), "table inet mute { chain out { type filter hook output priority 0; tcp sport 8080 drop; }; }")
	}
	const n = 20
	for i := range n {
		port := uint16(5000 + i)
		l.rawSYN(port, nil, nil)
		l.flowOf(&net.TCPAddr{Port: int(port), IP: net.IPv4zero}, every)
		for range 3 { // of which the first counts
			l.rawSegment(port, 2, tcpRST, nil, nil)
		}
	}
	want := begun{Tried: n, Withdrawn: n}
	if got := l.waitHandshakes(want); got != want {
		t.Errorf("(-want +got)\n%s", cmp.Diff(want, got))
	}
}

// fromClient sends an IPv4 packet to the client by way of the client's own interface
// of the balancer.
func (l *lab) fromClient(src [4]byte, protocol uint8, payload []byte) {
	l.t.Helper()
	b := append(header4(src, client4, protocol, len(payload)), payload...)
	var to net.HardwareAddr
	if err := l.lb.Do(func() error {
		i, err := net.InterfaceByName("client")
		if err == nil {
			to = i.HardwareAddr
		}
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	err := l.client.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		networkOrder := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_IP))
		a := unix.SockaddrLinklayer{Protocol: networkOrder, Ifindex: i.Index, Halen: 6}
		copy(a.Addr[:], to)
		return unix.Sendto(fd, b, 0, &a)
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

var client4 = [4]byte{198, 51, 100, 2}

// header4 is an IPv4 header.
func header4(src, dst [4]byte, protocol uint8, payload int) []byte {
	b := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0}
	binary.BigEndian.PutUint16(b[2:], uint16(20+payload))
	b = append(append(b, src[:]...), dst[:]...)
	binary.BigEndian.PutUint16(b[10:], checksum4(b))
	return b
}

// checksum4 is the Internet checksum (RFC 1071) of an even number of bytes.
func checksum4(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 0; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// TestNetnsHandshakesForged has a client refuse its own connections and datagrams in
// the name of the real server, and of a router before it, whose own answers get lost
// until then: none of that is a failure.
func TestNetnsHandshakesForged(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(passive(true))
	// The packets would be dropped by it, but later.
	l.lb.SetSysctl("net.ipv4.conf.client.rp_filter", "1")
	for _, s := range l.servers {
		nft(t, l.rulesOf(s), "table inet mute { chain out { type filter hook output priority 0; meta l4proto { tcp, udp } drop; }; }")
	}
	server := [4]byte{10, 0, 1, 2}
	unreachable := func(from [4]byte, protocol uint8, inner []byte) {
		b := append([]byte{3, 1, 0, 0, 0, 0, 0, 0}, header4(client4, server, protocol, len(inner))...)
		b = append(b, inner...)
		binary.BigEndian.PutUint16(b[2:], checksum4(b))
		l.fromClient(from, unix.IPPROTO_ICMP, b)
	}
	c, err := l.client.DialContext(t.Context(), "udp", addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("who"))
	l.flowOf(c.LocalAddr(), every)
	datagram := binary.BigEndian.AppendUint16(nil, uint16(c.LocalAddr().(*net.UDPAddr).Port))
	datagram = append(datagram, 8080>>8, 8080&0xff, 0, 8, 0, 0)
	const n = 5
	for i := range n {
		port := uint16(5000 + i)
		l.rawSYN(port, nil, nil)
		l.flowOf(&net.TCPAddr{Port: int(port), IP: net.IPv4zero}, every)
		there, back := flow.New4(protoTCP, client4, server, port, 8080), flow.New4(protoTCP, server, client4, 8080, port)
		for _, from := range [][4]byte{server, {10, 0, 1, 77}, client4} {
			unreachable(from, protoTCP, synOf(&there))
			unreachable(from, protoUDP, datagram)
		}
		l.rawAnswer(&back, 2, tcpRST|tcpACK)
	}
	want := begun{Tried: n, Withdrawn: n}
	if got := l.waitHandshakes(want); got != want {
		t.Errorf("(-want +got)\n%s", cmp.Diff(want, got))
	}
}

// rawAnswer sends a segment of a real server from the client.
func (l *lab) rawAnswer(tu *flow.Tuple, ack uint32, flags byte) {
	l.t.Helper()
	b := segmentOf(tu, 0, flags)
	binary.BigEndian.PutUint32(b[8:], ack)
	// The sum of what was 0 before.
	sum := uint32(^binary.BigEndian.Uint16(b[16:])) + ack>>16 + ack&0xffff
	binary.BigEndian.PutUint16(b[16:], ^uint16(sum>>16+sum&0xffff))
	l.fromClient(tu.Src().As4(), protoTCP, b)
}

// TestNetnsHandshakesOldSocket begins connections from ports of which the real server
// still has an earlier one, though connection tracking has none. It confirms what it
// has of that, with an ACK, which is an answer.
func TestNetnsHandshakesOldSocket(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(passive(true))
	nft(t, l.rulesOf(l.client), "table inet mute { chain out { type filter hook output priority 0; tcp flags rst drop; }; }")
	const n = 5
	for range n {
		c, _ := l.dial("tcp", addresses[0])
		defer c.Close()
		e := l.flowOf(c.LocalAddr(), every)
		l.lose(&e)
		l.rawSegment(uint16(c.LocalAddr().(*net.TCPAddr).Port), 77, tcpSYN, nil, nil)
	}
	want := begun{Tried: 2 * n, Answered: 2 * n}
	if got := l.waitHandshakes(want); got != want {
		t.Errorf("(-want +got)\n%s", cmp.Diff(want, got))
	}
}

// TestNetnsPassiveForeign has another program mark connections of its own, to the
// real server past the service, with the bit of those that wait: it stays.
func TestNetnsPassiveForeign(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(passive(true))
	mark := l.rules.opts.Tried() | 0x42
	nft(t, l.rules, fmt.Sprintf(`table inet other {
		chain from_others { type filter hook prerouting priority -150; ct state new ct mark set %#x; }
		chain from_here { type filter hook output priority -150; ct state new ct mark set %#[1]x; }
	}`, mark))
	for _, from := range []*netnstest.NS{l.client, l.lb} {
		for _, addr := range []string{serverAddr(4, 1), serverAddr(6, 1)} {
			c, err := from.DialContext(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := answerTo(c, "tcp"); err != nil {
				t.Fatal(err)
			}
			if e := l.flowOf(c.LocalAddr(), every); e.Mark != mark {
				t.Errorf("%v to %v: want mark %#x, got %#x", c.LocalAddr(), addr, mark, e.Mark)
			}
		}
	}
	if got := l.handshakes(); got != (begun{}) {
		t.Errorf("counted of others: %+v", got)
	}
}

// TestNetnsPassiveEdits switches Passive on and off. The rules of who never had it
// have nothing of it; later its chains stay, and count nothing.
func TestNetnsPassiveEdits(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(passive(false))
	without := l.ruleset()
	if strings.Contains(without, "passive") {
		t.Errorf("services without it have\n%s", without)
	}
	l.try(l.client, addresses[0], nil)
	if got := l.handshakes(); got != (begun{}) {
		t.Errorf("counted without: %+v", got)
	}
	for range 2 {
		l.apply(passive(true))
		l.try(l.client, addresses[0], nil)
		want := begun{Tried: 1, Answered: 1}
		if got := l.waitHandshakes(want); want != got {
			t.Errorf("with it (-want +got)\n%s", cmp.Diff(want, got))
		}
		if ok, err := l.rules.Intact(t.Context()); !ok || err != nil {
			t.Errorf("intact: %v, %v", ok, err)
		}
		l.apply(passive(false))
		l.try(l.client, addresses[0], nil)
		if got := l.handshakes(); got != (begun{}) {
			t.Errorf("counted after: %+v", got)
		}
		if ok, err := l.rules.Intact(t.Context()); !ok || err != nil {
			t.Errorf("intact: %v, %v", ok, err)
		}
	}
	// Nothing is left but sets without elements and chains that nothing leads to.
	for _, line := range strings.Split(l.ruleset(), "\n") {
		if strings.Contains(line, "jump passive") || strings.Contains(line, "ct state") && strings.Contains(line, "goto passive") {
			t.Errorf("left: %s", line)
		}
	}
	for _, family := range []string{"ip", "ip6"} {
		for _, set := range append([]string{setPassive}, countingSets...) {
			if list := nft(t, l.rules, "list", "set", family, "lbd", set); strings.Contains(list, "elements") {
				t.Errorf("left:\n%s", list)
			}
		}
	}
}

// TestHandshakeElements reads elements as the kernel has them, and none else.
func TestHandshakeElements(t *testing.T) {
	o, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	mark := string(u32(mark1))
	for _, test := range []struct{ set, key, want string }{
		{setAnswered, mark, "256 1 7"},
		{setReset, mark, "256 2 7"},
		{setTried, mark, "256 0 7"},
		{setWithdrawn, mark, "256 4 7"},
		{setUnreachable, mark + "\x06\x00\x00\x00", "256 3 7"},
		{setUnreachable, mark + "\x11\x00\x00\x00", "256 5 7"},
		{setUnreachable, mark, ""},
		{setWithdrawn, mark[:3], ""},
		{setTried, mark + "\x06\x00\x00\x00", ""},
		{setReset, mark + "\x06\x00\x00\x00", ""},
		{setReset, mark[:3], ""},
		{setReset, string(u32(o.Refuse())), ""},
		{setReset, string(u32(1)), ""},
	} {
		got := ""
		o.handshakes(test.set, func(m uint32, k Handshake, n uint64) { got = fmt.Sprint(m, k, n) })([]byte(test.key), 7, 0)
		if got != test.want {
			t.Errorf("%s %q: want %q, got %q", test.set, test.key, test.want, got)
		}
	}
}
