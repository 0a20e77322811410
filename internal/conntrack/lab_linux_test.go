package conntrack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// Addresses of the lab.
const (
	vip4, vip6       = "192.0.2.10", "2001:db8::10"
	client4, client6 = "192.0.2.2", "2001:db8::2"
	server4, server6 = "10.0.0.2", "2001:db8:1::2"

	patience = 20 * time.Second
)

// lab is a client, a balancer and a real server. The real server's way back
// leads through the balancer.
type lab struct {
	t                  testing.TB
	client, lb, server *netnstest.NS
}

func newLab(t testing.TB) *lab {
	netnstest.Require(t, "netns")
	l := &lab{t: t, client: netnstest.New(t), lb: netnstest.New(t), server: netnstest.New(t)}
	netnstest.Veth(l.client, "eth0", l.lb, "front")
	netnstest.Veth(l.server, "eth0", l.lb, "back")
	l.client.AddAddr("eth0", client4+"/24")
	l.client.AddAddr("eth0", client6+"/64")
	for _, a := range []string{"192.0.2.1/24", vip4 + "/24", "2001:db8::1/64", vip6 + "/64"} {
		l.lb.AddAddr("front", a)
	}
	l.lb.AddAddr("back", "10.0.0.1/24")
	l.lb.AddAddr("back", "2001:db8:1::1/64")
	l.server.AddAddr("eth0", server4+"/24")
	l.server.AddAddr("eth0", server6+"/64")
	l.server.AddRoute("0.0.0.0/0", "10.0.0.1")
	l.server.AddRoute("::/0", "2001:db8:1::1")
	askSoon(l.client, "eth0")
	askSoon(l.lb, "front")
	askSoon(l.lb, "back")
	askSoon(l.server, "eth0")
	l.lb.SetSysctl("net.ipv4.ip_forward", "1")
	l.lb.SetSysctl("net.ipv6.conf.all.forwarding", "1")
	l.lb.SetSysctl("net.netfilter.nf_conntrack_events", "0")
	l.lb.SetSysctl("net.netfilter.nf_conntrack_acct", "1")
	l.meet("192.0.2.1")
	l.meet("2001:db8::1")
	return l
}

// askSoon shortens the wait for an address of the link layer: a new device may
// lose what it sends first, and would ask again after 1 s.
func askSoon(ns *netnstest.NS, dev string) {
	for _, family := range []string{"ipv4", "ipv6"} {
		key := "net/" + family + "/neigh/" + dev + "/"
		ns.SetSysctl(key+"retrans_time_ms", "10")
		ns.SetSysctl(key+"mcast_solicit", "200")
	}
}

// meet makes the client and the balancer know each other's link-layer address,
// so that what is sent later is there when the send returns. Nothing is tracked
// yet.
func (l *lab) meet(addr string) {
	l.t.Helper()
	c, err := l.client.DialContext(l.t.Context(), "udp", net.JoinHostPort(addr, "9"))
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("x")); err != nil {
		l.t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
		l.t.Fatalf("want %v from %s, got %v", unix.ECONNREFUSED, addr, err)
	}
}

// rules loads an nft ruleset into the balancer. Its tables replace those of
// before.
func (l *lab) rules(text string) {
	l.t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader("flush ruleset\n" + text)
	if out, err := l.lb.Run(cmd); err != nil {
		l.t.Fatalf("nft: %v\n%s", err, out)
	}
}

// The order of the two statements of a new flow. The events are bits of enum
// ip_conntrack_events, include/uapi/linux/netfilter/nf_conntrack_common.h: new is
// 0x1, destroy 0x4, mark 0x80, for which the nft tool has no word.
const (
	markThenEvents = "ct mark set 0x100 ct event set 0x84"
	eventsThenMark = "ct event set 0x85 ct mark set 0x100"
)

// ruleset translates port 80, TCP and UDP, to the server's port 8080.
func ruleset(statements string) string {
	return fmt.Sprintf(`
table inet lab {
	chain fin {
		type filter hook prerouting priority -139
		meta l4proto tcp tcp flags & (fin | rst) != 0 ct mark & 0x10000100 == 0x100 ct mark set ct mark | 0x10000000
	}
	chain pre {
		type nat hook prerouting priority -100
		ip daddr %[1]s meta l4proto { tcp, udp } th dport 80 %[2]s dnat ip to %[3]s:8080
		ip6 daddr %[4]s meta l4proto { tcp, udp } th dport 80 %[2]s dnat ip6 to [%[5]s]:8080
	}
}`, vip4, statements, server4, vip6, server6)
}

// echo serves TCP and UDP on the server's port 8080, both families: it sends
// back what comes.
func (l *lab) echo() {
	for _, addr := range []string{server4 + ":8080", "[" + server6 + "]:8080"} {
		ln := l.server.Listen("tcp", addr)
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					io.Copy(c, c)
				}()
			}
		}()
		pc := l.server.ListenPacket("udp", addr)
		go func() {
			b := make([]byte, 2048)
			for {
				n, from, err := pc.ReadFrom(b)
				if err != nil {
					return
				}
				pc.WriteTo(b[:n], from)
			}
		}()
	}
}

// dial connects from the client and has one answer.
func (l *lab) dial(network, addr string) net.Conn {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := l.client.DialContext(ctx, network, addr)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("hello")); err != nil {
		l.t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		l.t.Fatal(err)
	}
	return c
}

func (l *lab) table() *Table {
	l.t.Helper()
	t, err := OpenTable(l.lb.FD())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { t.Close() })
	return t
}

func (l *lab) dump(tab *Table, f Filter) (got []Event) {
	l.t.Helper()
	if err := tab.Dump(context.Background(), f, func(ev *Event) { got = append(got, *ev) }); err != nil {
		l.t.Fatal(err)
	}
	return got
}

// list prints events a line each.
func list(events []Event) string {
	var b strings.Builder
	for _, ev := range events {
		fmt.Fprintf(&b, "\n%s mark %#x tcp %d %v", ev.Kind, ev.Mark, ev.TCPState, ev.Orig)
	}
	return b.String()
}
