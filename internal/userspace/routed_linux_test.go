package userspace

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/lbd-project/lbd/ipvs"
)

// TestNetnsRouted balances by direct routing, over a restart of the engine.
func TestNetnsRouted(t *testing.T) {
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 2)
			l.route()
			l.open()
			svc, ops := l.service(ipvs.TCP, f)
			udp, udpOps := l.service(ipvs.UDP, f)
			for _, op := range append(ops, udpOps...) {
				if op.Kind == ipvs.OpAddDestination {
					op = routedTo(op)
				}
				l.apply(op)
			}
			conns, got := l.connect(svc, 6)
			if d := diff(map[string]int{"s1": 3, "s2": 3}, got); d != "" {
				t.Errorf("connections (-want +got):\n%s", d)
			}
			for i, want := range []string{"s1", "s2", "s1", "s1", "s2"} {
				port := 2000 + []int{0, 1, 0, 0, 1}[i]
				if got, err := l.ask(udp, port); got != want || err != nil {
					t.Errorf("datagram from port %d: want %s, got %q, %v", port, want, got, err)
				}
			}
			l.eventually(svc, map[string]string{"s1": "3/0/0", "s2": "3/0/0"})
			l.eventually(udp, map[string]string{"s1": "0/1/0", "s2": "0/1/0"})
			conns[0].Close()
			l.eventually(svc, map[string]string{"s1": "2/1/0", "s2": "3/0/0"})

			l.stop()
			for _, c := range conns[1:] {
				if err := c.alive(); err != nil {
					t.Errorf("connection to %s without an engine: %v", c.server, err)
				}
			}
			more, _ := l.connect(svc, 10)
			counts := make(map[string]int)
			for _, c := range append(more, conns[1:]...) {
				counts[c.server]++
			}
			conns[1].Close()
			counts["s2"]--
			l.open()
			l.eventually(svc, map[string]string{
				"s1": fmt.Sprintf("%d/1/0", counts["s1"]), "s2": fmt.Sprintf("%d/1/0", counts["s2"]),
			})
		})
	}
}

// TestNetnsTunnel balances through tunnels, one of which is of the other IP
// version, over the end of the engine, a deleted real server and Clear.
func TestNetnsTunnel(t *testing.T) {
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 2)
			l.route()
			for _, s := range l.servers {
				s.ns.Unwrap()
			}
			before := l.routes()
			l.open()
			ends := []string{l.servers[0].at(f), l.servers[1].at(ipvs.IPv4 + ipvs.IPv6 - f)}
			svc, _ := l.service(ipvs.TCP, f)
			udp, _ := l.service(ipvs.UDP, f)
			for _, s := range []ipvs.Service{svc, udp} {
				l.apply(addOp(s), tunnelTo(add(s, ends[1], 1)), tunnelTo(add(s, ends[0], 1)))
			}
			conns, got := l.connect(svc, 6)
			if d := diff(map[string]int{"s1": 3, "s2": 3}, got); d != "" {
				t.Errorf("connections (-want +got):\n%s", d)
			}
			for i, want := range []string{"s1", "s2", "s1", "s1", "s2"} {
				port := 2000 + []int{0, 1, 0, 0, 1}[i]
				if got, err := l.ask(udp, port); got != want || err != nil {
					t.Errorf("datagram from port %d: want %s, got %q, %v", port, want, got, err)
				}
			}
			l.eventually(udp, map[string]string{"s1": "0/1/0", "s2": "0/1/0"})
			conns[0].Close()
			l.eventually(svc, map[string]string{"s1": "2/1/0", "s2": "3/0/0"})

			l.stop()
			more, got := l.connect(svc, 10)
			conns = append(conns[1:], more...)
			l.alive(conns)
			l.open()
			l.eventually(svc, map[string]string{
				"s1": fmt.Sprintf("%d/1/0", 2+got["s1"]), "s2": fmt.Sprintf("%d/0/0", 3+got["s2"]),
			})
			l.alive(conns)

			// Deleted, and back.
			one := conns[slices.IndexFunc(conns, func(c *conn) bool { return c.server == "s1" })]
			l.apply(remove(svc, ends[0]))
			if one.answers(silence) == nil {
				t.Error("a connection to a deleted real server goes on")
			}
			l.alive(slices.DeleteFunc(slices.Clone(conns), func(c *conn) bool { return c.server == "s1" }))
			if _, got := l.connect(svc, 3); got["s2"] != 3 {
				t.Errorf("connections without s1: %v", got)
			}
			l.apply(tunnelTo(add(svc, ends[0], 1)))
			l.until(func() string {
				if err := one.answers(silence); err != nil {
					return err.Error()
				}
				return ""
			}, "a connection to a real server that came back")
			l.alive(conns)
			l.eventually(svc, map[string]string{
				"s1": fmt.Sprintf("%d/1/0", 2+got["s1"]), "s2": fmt.Sprintf("%d/0/0", 6+got["s2"]),
			})

			l.stopRunning()
			if err := l.engine.Clear(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d := diff(before, l.routes()); d != "" {
				t.Errorf("routes after Clear (-want +got):\n%s", d)
			}
		})
	}
}

// alive checks that connections still carry data.
func (l *lab) alive(conns []*conn) {
	l.t.Helper()
	for i, c := range conns {
		if err := c.alive(); err != nil {
			l.t.Errorf("connection %d to %s: %v", i, c.server, err)
		}
	}
}

// routes returns the balancer's routes, sorted.
func (l *lab) routes() []string {
	l.t.Helper()
	var list []string
	for _, v := range []string{"-4", "-6"} {
		out, err := l.balancer.Run(exec.Command("ip", v, "route"))
		if err != nil {
			l.t.Fatal(err)
		}
		list = append(list, strings.Split(out, "\n")...)
	}
	slices.Sort(list)
	return list
}

// TestNetnsOnePacket schedules each datagram of a flow by itself.
func TestNetnsOnePacket(t *testing.T) {
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 2)
			l.open()
			svc, ops := l.service(ipvs.UDP, f)
			svc.Scheduler, svc.Flags = "rr", ipvs.FlagOnePacket
			ops[0].Service = svc
			l.apply(ops...)
			got := make(map[string]int)
			for range 10 {
				name, err := l.ask(svc, 2000)
				if err != nil {
					t.Fatal(err)
				}
				got[name]++
			}
			if d := diff(map[string]int{"s1": 5, "s2": 5}, got); d != "" {
				t.Errorf("answers (-want +got):\n%s", d)
			}
			l.eventually(svc, map[string]string{"s1": "0/0/0", "s2": "0/0/0"})
			if s := l.stats(svc); s.Connections != 10 || s.PacketsIn != 10 {
				t.Errorf("statistics: want 10 connections and packets, got %+v", s)
			}
		})
	}
}
