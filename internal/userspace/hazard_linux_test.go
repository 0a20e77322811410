package userspace

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// nft runs a command of nftables in a namespace.
func nft(t testing.TB, ns *netnstest.NS, command string) string {
	t.Helper()
	out, err := ns.Run(exec.Command("nft", strings.Fields(command)...))
	if err != nil {
		t.Fatalf("nft %s: %v", command, err)
	}
	return out
}

// hold keeps the engine from answering until the returned function is called, at
// the end of the test at last: the engine could not end before.
func (l *lab) hold() (release func()) {
	l.engine.mu.Lock()
	release = sync.OnceFunc(l.engine.mu.Unlock)
	l.t.Cleanup(release)
	return release
}

// waiting waits until n packets are in the queues.
func (l *lab) waiting(n uint64) {
	l.t.Helper()
	l.until(func() string {
		queues, err := l.engine.kernelQueues()
		if err != nil {
			l.t.Fatal(err)
		}
		var all uint64
		for _, q := range queues {
			// What the engine has received and not answered waits as well.
			all += q.Waiting
		}
		if all >= n {
			return ""
		}
		return fmt.Sprintf("%+v", queues)
	}, "%d packets in the queues", n)
}

// TestNetnsRetransmit has the first packet of a connection twice in the queue.
func TestNetnsRetransmit(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	release := l.hold()
	dialed := make(chan error, 1)
	var c *conn
	go func() {
		var err error
		c, err = l.dial(l.client, svc)
		dialed <- err
	}()
	l.waiting(2) // the second comes after a second
	release()
	if err := <-dialed; err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.server != "s1" || c.alive() != nil {
		t.Errorf("connection to %s: want s1, alive", c.server)
	}
	l.eventually(svc, map[string]string{"s1": "1/0/0", "s2": "0/0/0"})
}

// firstSegment is a packet that begins a TCP connection.
func firstSegment(from, to netip.AddrPort, seq uint32) []byte {
	b := binary.BigEndian.AppendUint16(nil, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint32(b, seq)
	b = append(b, 0, 0, 0, 0, 5<<4, 2, 0xff, 0xff, 0, 0, 0, 0)
	sum := append(append([]byte{}, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	sum = append(sum, 0, unix.IPPROTO_TCP, 0, byte(len(b)))
	binary.BigEndian.PutUint16(b[16:], checksum(append(sum, b...)))
	return network(from.Addr(), to.Addr(), unix.IPPROTO_TCP, b)
}

// TestNetnsHandshakesRepeated has a client send the first segment of a connection
// many times before it gets through, as it is and with other sequence numbers.
// Connection tracking drops all but one, all of them before or all behind the rules
// that count tries, as the kernel has it, so the others say nothing of the real
// servers.
func TestNetnsHandshakesRepeated(t *testing.T) {
	t.Parallel()
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		l := newLab(t, 2)
		l.open()
		svc, ops := l.service(ipvs.TCP, f)
		l.apply(ops...)
		if err := l.engine.WatchHandshakes(t.Context(), []ipvs.ServiceKey{svc.ServiceKey}); err != nil {
			t.Fatal(err)
		}
		from := netip.AddrPortFrom(clientAddr(f), 5000)
		var packets [][]byte
		for i := range 10 {
			packets = append(packets, firstSegment(from, svc.Address, uint32(i/5)))
		}
		release := l.hold()
		sendRaw(t, l.client, f, svc.Address.Addr(), packets...)
		l.waiting(uint64(len(packets)))
		release()
		var all Handshakes
		l.until(func() string {
			list, err := l.engine.Handshakes()
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range list {
				all.Tried += h.Tried
				all.Answered += h.Answered
				all.Withdrawn += h.Withdrawn
			}
			if (all.Tried == 1 || all.Tried == uint64(len(packets))) && all.Answered == 1 && all.Withdrawn == 9 {
				return ""
			}
			return fmt.Sprintf("%d tried, %d answered, %d withdrawn", all.Tried, all.Answered, all.Withdrawn)
		}, "%v: one answered and nine withdrawn", f)
	}
}

// TestNetnsDatagramsAtOnce has several datagrams of a flow in the queue at once:
// all go to one server, the flow is counted once, and none is lost.
func TestNetnsDatagramsAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	l.open()
	svc, ops := l.service(ipvs.UDP, ipvs.IPv4)
	l.apply(ops...)
	var c net.Conn
	if err := l.client.Do(func() (err error) {
		c, err = net.Dial("udp", svc.Address.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	release := l.hold()
	for range 5 {
		if _, err := c.Write([]byte("who")); err != nil {
			t.Fatal(err)
		}
	}
	l.waiting(5)
	release()
	for i := range 5 {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 10)
		if n, err := c.Read(b); string(b[:n]) != "s1" || err != nil {
			t.Fatalf("answer %d: want s1, got %q, %v", i, b[:n], err)
		}
	}
	l.eventually(svc, map[string]string{"s1": "0/1/0", "s2": "0/0/0", "s3": "0/0/0"})
}

// TestNetnsOneWay sends datagrams to which nobody answers: they are one flow.
func TestNetnsOneWay(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	for _, s := range l.servers {
		nft(t, s.ns, "add table ip mute")
		nft(t, s.ns, "add chain ip mute in { type filter hook input priority 0 ; policy drop ; }")
	}
	l.open()
	svc, ops := l.service(ipvs.UDP, ipvs.IPv4)
	l.apply(ops...)
	var c net.Conn
	if err := l.client.Do(func() (err error) {
		c, err = net.Dial("udp", svc.Address.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 10 {
		if _, err := c.Write([]byte("log")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // so that they do not wait together
	}
	l.eventually(svc, map[string]string{"s1": "0/1/0", "s2": "0/0/0"})
	if s := l.stats(svc); s.Connections != 1 {
		t.Errorf("connections: want 1, got %d", s.Connections)
	}
}

func (l *lab) stats(svc ipvs.Service) ipvs.Stats {
	l.t.Helper()
	list, err := l.engine.Services(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, s := range list {
		if s.ServiceKey == svc.ServiceKey {
			return s.Stats
		}
	}
	l.t.Fatalf("no service %v", svc.ServiceKey)
	return ipvs.Stats{}
}

// TestNetnsNeverConfirmed drops connections behind the verdict: they are not
// counted for long.
func TestNetnsNeverConfirmed(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	nft(t, l.balancer, "add table ip wall")
	nft(t, l.balancer, "add chain ip wall f { type filter hook forward priority 0 ; policy drop ; }")
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dialed := make(chan error, 3)
	for range cap(dialed) {
		go func() {
			c, err := l.client.DialContext(ctx, "tcp", svc.Address.String())
			if err == nil {
				c.Close()
			}
			dialed <- err
		}()
	}
	l.until(func() string {
		if n := l.stats(svc).Connections; n < uint64(cap(dialed)) {
			return fmt.Sprint(n)
		}
		return ""
	}, "connections that are scheduled")
	cancel()
	for range cap(dialed) {
		if err := <-dialed; err == nil {
			t.Fatal("connected through a wall")
		}
	}
	l.eventually(svc, map[string]string{"s1": "0/0/0", "s2": "0/0/0"})
}

// TestNetnsPortsAgain uses a few ports again and again, with connections that
// end in every way.
func TestNetnsPortsAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	for i := range 150 {
		port := 3000 + i%5
		d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.IPv4(198, 51, 100, 100), Port: port}}
		var c net.Conn
		err := l.client.WhenFree(func() (err error) {
			c, err = d.Dial("tcp", svc.Address.String())
			return err
		})
		if err != nil {
			t.Fatalf("connection %d from port %d: %v", i, port, err)
		}
		// With an RST, so that the client's own kernel lets go of the port.
		if err := c.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	// Five are left in conntrack, for ten seconds.
	l.until(func() string {
		n := 0
		for _, text := range l.conns(svc) {
			var c ipvs.Conns
			fmt.Sscanf(text, "%d/%d/%d", &c.Active, &c.Inactive, &c.Persistent)
			n += int(c.Active + c.Inactive)
		}
		if n > 5 {
			return fmt.Sprintf("%d", n)
		}
		return ""
	}, "connections that are counted")
	l.eventually(svc, map[string]string{"s1": "0/0/0", "s2": "0/0/0", "s3": "0/0/0"})
	if s := l.stats(svc); s.Connections != 150 {
		t.Errorf("connections: want 150, got %d", s.Connections)
	}
}

// TestNetnsOverrun has a socket for events that is far too small.
func TestNetnsOverrun(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	l.eventBuffer = 2 << 10
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	svc.Scheduler = "least-active" // connections tell of more than their ends
	ops[0].Service = svc
	l.apply(ops...)
	for range 5 {
		conns, _ := l.connect(svc, 100)
		release := l.hold() // no event is read meanwhile
		for _, c := range conns[:90] {
			c.Close()
		}
		release()
	}
	l.engine.mu.Lock()
	l.engine.drain()
	overruns := l.engine.overruns
	l.engine.mu.Unlock()
	if overruns == 0 {
		t.Fatal("no event was lost")
	}
	// A process that another test is starting may have copies of connections, which
	// close once it executes its program.
	l.until(func() string {
		want := l.tracked()
		got := make(map[string]string)
		for name, text := range l.conns(svc) {
			got[name] = strings.TrimSuffix(text, "/0")
		}
		if d := diff(want, got); d != "" {
			return d
		}
		// On a slow machine some of the 450 may be over already.
		if n := l.engine.inactiveCount(svc.ServiceKey); n < 400 {
			return fmt.Sprintf("%d inactive connections instead of 450", n)
		}
		return ""
	}, "counts and conntrack (-want +got)")
}

// TestNetnsQuiesceAndDelete goes through weight 0, delete, and the way back.
func TestNetnsQuiesceAndDelete(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	at := l.servers[0].at(ipvs.IPv4)
	conns, _ := l.connect(svc, 2)
	l.apply(update(svc, at, 0))
	if _, got := l.connect(svc, 2); got["s2"] != 2 {
		t.Errorf("with weight 0: got %v", got)
	}
	if err := conns[0].alive(); err != nil || conns[0].server != "s1" {
		t.Errorf("connection to %s with weight 0: %v", conns[0].server, err)
	}
	l.apply(remove(svc, at))
	if err := conns[0].answers(silence); !isTimeout(err) {
		t.Errorf("connection to a deleted real server: want silence, got %v", err)
	}
	l.apply(add(svc, at, 1))
	l.until(func() string { // the client's retransmission
		if err := conns[0].answers(silence); err != nil {
			return err.Error()
		}
		return ""
	}, "connection to a real server that came back")
	l.eventually(svc, map[string]string{"s1": "1/0/0", "s2": "3/0/0"})

	if _, err := l.engine.SetSysctl(sysctlNodest, "1"); err != nil {
		t.Fatal(err)
	}
	l.apply(remove(svc, at))
	if err := conns[0].alive(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("connection to a deleted real server with expire_nodest_conn: want a reset, got %v", err)
	}
	l.apply(add(svc, at, 1))
	l.eventually(svc, map[string]string{"s1": "0/0/0", "s2": "3/0/0"})
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// TestNetnsThresholds stops a server at its upper threshold.
func TestNetnsThresholds(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	limited := update(svc, l.servers[0].at(ipvs.IPv4), 100)
	limited.Destination.UpperThreshold = 3
	l.apply(limited)
	if _, got := l.connect(svc, 8); got["s1"] != 3 || got["s2"] != 5 {
		t.Errorf("connections: want 3 and 5, got %v", got)
	}
	limited = update(svc, l.servers[1].at(ipvs.IPv4), 1)
	limited.Destination.UpperThreshold = 5
	l.apply(limited)
	if c, err := l.dial(l.client, svc); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("with all servers full: want a refusal, got %v, %v", c, err)
	}
}

// TestNetnsPersistence keeps clients at their servers, also without the engine
// and with the next one.
func TestNetnsPersistence(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	l.client.AddAddr("eth0", "198.51.100.101/24")
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	svc.Scheduler, svc.Flags, svc.Persistence.Timeout = "rr", ipvs.FlagPersistent, time.Minute
	ops[0].Service = svc
	l.apply(ops...)
	clients := map[string]string{"198.51.100.100": "", "198.51.100.101": ""}
	ask := func(when string) {
		t.Helper()
		for client, want := range clients {
			for range 3 {
				d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
				var c net.Conn
				if err := l.client.Do(func() (err error) {
					c, err = d.Dial("tcp", svc.Address.String())
					return err
				}); err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				b := make([]byte, 2)
				if _, err := c.Read(b); err != nil {
					t.Fatal(err)
				}
				c.Close()
				if want == "" {
					want = string(b)
					clients[client] = want
				}
				if string(b) != want {
					t.Errorf("%s: %s went to %s, want %s", when, client, b, want)
				}
			}
		}
	}
	ask("with the first engine")
	if clients["198.51.100.100"] == clients["198.51.100.101"] {
		t.Errorf("rr gave both clients %s", clients["198.51.100.100"])
	}
	l.stop()
	ask("without an engine")
	l.open()
	templates := 0
	for _, text := range l.conns(svc) {
		var c ipvs.Conns
		fmt.Sscanf(text, "%d/%d/%d", &c.Active, &c.Inactive, &c.Persistent)
		templates += int(c.Persistent)
	}
	if templates != 2 {
		t.Errorf("templates of the next engine: want 2, got %d", templates)
	}
	ask("with the next engine")
}

// TestNetnsMarkAndAnyPort balances by firewall mark, and every port of a VIP.
func TestNetnsMarkAndAnyPort(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	for _, s := range l.servers {
		s.serveTCP(81)
	}
	nft(t, l.balancer, "add table ip marks")
	nft(t, l.balancer, "add chain ip marks pre { type filter hook prerouting priority -150 ; }")
	nft(t, l.balancer, "add rule ip marks pre ip daddr 192.0.2.77 meta mark set 7")
	l.balancer.AddAddr("lo", "192.0.2.77/32")
	l.open()
	mark := ipvs.Service{ServiceKey: ipvs.MarkService(ipvs.IPv4, 7), Scheduler: "rr"}
	every := tcpService(labVIP4 + ":0")
	every.Flags, every.Persistence.Timeout = ipvs.FlagPersistent, time.Minute
	l.apply(addOp(mark), addOp(every))
	for _, s := range l.servers {
		l.apply(add(mark, s.v4.String()+":0", 1), add(every, s.v4.String()+":0", 1))
	}
	to := func(address string) ipvs.Service {
		return ipvs.Service{ServiceKey: ipvs.ServiceKey{Address: netip.MustParseAddrPort(address)}}
	}
	_, got := l.connect(to("192.0.2.77:80"), 2)
	_, got81 := l.connect(to("192.0.2.77:81"), 2)
	if got["s1"] != 1 || got81["s1"] != 1 {
		t.Errorf("by mark: got %v and %v", got, got81)
	}
	l.eventually(mark, map[string]string{"s1": "2/0/0", "s2": "2/0/0"})
	_, got = l.connect(to(labVIP4+":80"), 2)
	_, got81 = l.connect(to(labVIP4+":81"), 2)
	if d := diff(got, got81); d != "" || len(got) != 1 {
		t.Errorf("every port: got %v and %v", got, got81)
	}
}

// TestNetnsRulesComeBack has somebody delete a table of the engine.
func TestNetnsRulesComeBack(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	nft(t, l.balancer, "delete table ip lbd")
	l.until(func() string {
		out, err := l.balancer.Run(exec.Command("nft", "list", "table", "ip", "lbd"))
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(out, "192.0.2.10") {
			return out
		}
		return ""
	}, "table ip lbd")
	if _, got := l.connect(svc, 4); got["s1"] != 2 || got["s2"] != 2 {
		t.Errorf("connections: got %v", got)
	}
}

// TestNetnsClear takes everything back, and leaves what others set since.
func TestNetnsClear(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	const events = "net.netfilter.nf_conntrack_events"
	l.balancer.SetSysctl(events, "2")
	l.open()
	_, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	if got := l.balancer.Sysctl(events); got != "0" {
		t.Errorf("%s while it runs: want 0, got %s", events, got)
	}
	l.stop()
	l.open() // the next one knows what there was
	l.balancer.SetSysctl(events, "1")
	l.balancer.SetSysctl(events, "0") // the same value: nobody can tell
	e := l.engine
	l.stopRunning()
	if err := e.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := l.balancer.Sysctl(events); got != "2" {
		t.Errorf("%s: want 2, got %s", events, got)
	}
	if out := nft(t, l.balancer, "list tables"); strings.Contains(out, "lbd") {
		t.Errorf("tables: %s", out)
	}
	if len(l.store.data) != 0 {
		t.Errorf("the store has %s", l.store.data)
	}

	// Somebody else's value stays.
	l.stop()
	l.open()
	l.balancer.SetSysctl(events, "1")
	e = l.engine
	l.stopRunning()
	if err := e.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := l.balancer.Sysctl(events); got != "1" {
		t.Errorf("%s of somebody else: want 1, got %s", events, got)
	}
}
