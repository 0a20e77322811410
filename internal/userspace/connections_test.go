package userspace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/ipvs"
)

// TestConnections lists flows of every protocol and templates, under the
// kernel's names.
func TestConnections(t *testing.T) {
	g := newRig(t)
	udp := udpService("192.0.2.10:53")
	mark := ipvs.Service{ServiceKey: ipvs.MarkService(ipvs.IPv4, 0x01020304&^0x0fffff00), Scheduler: "rr", Flags: ipvs.FlagPersistent,
		Persistence: ipvs.Persistence{Timeout: time.Minute, Netmask: ipvs.NetmaskV4(netip.MustParseAddr("255.255.255.0"))}}
	g.apply(addOp(web), add(web, one, 1), addOp(udp), add(udp, two, 1), addOp(mark), add(mark, "10.0.0.3:0", 1))
	enter := func(tu flow.Tuple, mark uint32, server string, state uint8, left time.Duration) {
		g.kernel.begin(tu, mark, false)
		en := g.kernel.entries[tu]
		en.Reply = flow.New(tu.Protocol, netip.MustParseAddrPort(server), netip.AddrPortFrom(tu.Src(), tu.SrcPort))
		en.TCPState, en.Timeout = state, left
	}
	enter(tupleTo(web, "198.51.100.1:1000"), 0x100, one, 3, 900*time.Second)
	enter(tupleTo(web, "198.51.100.1:1001"), 0x100|testInactive, one, 7, 100*time.Second)
	enter(tupleTo(udp, "198.51.100.1:1002"), 0x200, two, 0, 300*time.Second)
	enter(tupleTo(web, "198.51.100.1:1003"), 0, one, 3, time.Second)
	enter(tupleTo(web, "198.51.100.1:1004"), 0x7700, one, 3, time.Second)
	g.engine.mu.Lock()
	g.engine.adoptTemplate(g.engine.model.server(3), netip.MustParseAddr("198.51.100.77"), 50*time.Second)
	g.engine.mu.Unlock()
	read := func(most int) (lines []string, err error) {
		for c, e := range g.engine.Connections(t.Context()) {
			if e != nil {
				return lines, e
			}
			if !g.engine.mu.TryLock() {
				return lines, errors.New("a slow reader would hold the lock")
			}
			g.engine.mu.Unlock()
			lines = append(lines, fmt.Sprintf("%v %v %v %v %s %v", c.Protocol, c.Client, c.Virtual, c.Server, c.State, c.Expires))
			if len(lines) == most {
				break
			}
		}
		slices.Sort(lines)
		return lines, nil
	}
	got, err := read(-1)
	want := []string{
		"0 198.51.100.0:0 0.0.0.4:0 10.0.0.3:0 NONE 50s",
		"TCP 198.51.100.1:1000 192.0.2.10:80 10.0.0.1:80 ESTABLISHED 15m0s",
		"TCP 198.51.100.1:1001 192.0.2.10:80 10.0.0.1:80 TIME_WAIT 1m40s",
		"UDP 198.51.100.1:1002 192.0.2.10:53 10.0.0.2:80 UDP 5m0s",
	}
	if d := diff(want, got); d != "" || err != nil {
		t.Errorf("connections (-want +got):\n%s%v", d, err)
	}
	for most := 1; most < 4; most++ {
		if got, err := read(most); len(got) != most || err != nil {
			t.Errorf("the first %d: got %v, %v", most, got, err)
		}
	}
	g.kernel.dumpError = errTest
	if _, err := read(-1); !errors.Is(err, errTest) {
		t.Errorf("want %v, got %v", errTest, err)
	}
	g.kernel.dumpError = conntrack.ErrInterrupted
	if got, err := read(-1); len(got) != 4 || err != nil {
		t.Errorf("an interrupted dump: got %v, %v", got, err)
	}
}

func TestMarkAddress(t *testing.T) {
	if got := markAddress(ipvs.MarkService(ipvs.IPv6, 0x01020304)).String(); got != "102:304::" {
		t.Errorf("want 102:304::, got %s", got)
	}
}

// TestStateName names states as IPVS would after the same packets.
func TestStateName(t *testing.T) {
	const client, server = 1, 2
	for _, tt := range []struct {
		protocol     ipvs.Protocol
		state        uint8
		closes       int
		want, packet string
	}{
		{ipvs.TCP, 1, 0, "SYN_RECV", "SYN"},
		{ipvs.TCP, 2, 0, "SYN_RECV", "SYN-ACK"},
		{ipvs.TCP, 3, 0, "ESTABLISHED", "ACK"},
		{ipvs.TCP, 4, client, "CLOSE_WAIT", "the client's FIN"},
		{ipvs.TCP, 5, client, "CLOSE_WAIT", "its ACK"},
		{ipvs.TCP, 4, server, "FIN_WAIT", "the server's FIN"},
		{ipvs.TCP, 5, server, "FIN_WAIT", "its ACK"},
		{ipvs.TCP, 6, client, "TIME_WAIT", "the server's FIN after the client's"},
		{ipvs.TCP, 6, server, "TIME_WAIT", "the client's FIN after the server's"},
		{ipvs.TCP, 7, client, "TIME_WAIT", "the last ACK"},
		{ipvs.TCP, 8, 0, "CLOSE", "RST"},
		{ipvs.TCP, 200, 0, "NONE", "of the future"},
		{ipvs.SCTP, 2, 0, "INIT1", "INIT"},
		{ipvs.SCTP, 3, 0, "C-REPLIED", "COOKIE ECHO"},
		{ipvs.SCTP, 4, 0, "ESTABLISHED", "COOKIE ACK"},
		{ipvs.SCTP, 5, 0, "S-RECEIVED", "the client's SHUTDOWN"},
		{ipvs.SCTP, 6, 0, "S-SENT", "the server's SHUTDOWN"},
		{ipvs.SCTP, 7, 0, "S-ACK-SENT", "SHUTDOWN ACK"},
		{ipvs.SCTP, 1, 0, "CLOSED", "SHUTDOWN COMPLETE"},
		{ipvs.UDP, 0, 0, "UDP", "a datagram"},
		{47, 0, 0, "NONE", "GRE"},
	} {
		ev := conntrack.Event{ClientCloses: tt.closes == client, ServerCloses: tt.closes == server}
		ev.Orig.Protocol = uint8(tt.protocol)
		if tt.protocol == ipvs.TCP {
			ev.TCPState = tt.state
		} else {
			ev.SCTPState = tt.state
		}
		if got := stateName(&ev); got != tt.want {
			t.Errorf("%v after %s: want %s, got %s", tt.protocol, tt.packet, tt.want, got)
		}
	}
}

// TestManyTemplates lists more templates than fit under one lock, while others
// end.
func TestManyTemplates(t *testing.T) {
	g := newRig(t)
	s := ipvs.Service{ServiceKey: ipvs.MarkService(ipvs.IPv4, 4), Scheduler: "rr", Flags: ipvs.FlagPersistent,
		Persistence: ipvs.Persistence{Timeout: time.Minute, Netmask: ipvs.NetmaskV4(netip.MustParseAddr("255.255.255.255"))}}
	g.apply(addOp(s), add(s, "10.0.0.3:0", 1))
	const many = 3*someTemplates + 5
	g.engine.mu.Lock()
	for i := range many {
		g.engine.adoptTemplate(g.engine.model.server(1), netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), time.Minute)
	}
	g.engine.mu.Unlock()
	seen := map[netip.AddrPort]bool{}
	for c, err := range g.engine.Connections(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[c.Client] = true; len(seen) == 1 {
			// The engine works while somebody reads slowly.
			g.engine.mu.Lock()
			g.engine.dropTemplate(uint32(many))
			g.engine.mu.Unlock()
		}
	}
	if len(seen) != many-1 {
		t.Errorf("want %d templates, got %d", many-1, len(seen))
	}
}
