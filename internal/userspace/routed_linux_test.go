package userspace

import (
	"fmt"
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
