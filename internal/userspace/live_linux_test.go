package userspace

import (
	"fmt"
	"net"
	"testing"

	"github.com/lbd-project/lbd/ipvs"
)

// TestNetnsTCP spreads connections, counts them, and counts them no more.
func TestNetnsTCP(t *testing.T) {
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			l := newLab(t, 3)
			l.open()
			svc, ops := l.service(ipvs.TCP, f)
			l.apply(ops...)
			l.apply(update(svc, l.servers[1].at(f), 2))
			conns, got := l.connect(svc, 20)
			if d := diff(map[string]int{"s1": 5, "s2": 10, "s3": 5}, got); d != "" {
				t.Errorf("connections (-want +got):\n%s", d)
			}
			l.eventually(svc, map[string]string{"s1": "5/0/0", "s2": "10/0/0", "s3": "5/0/0"})
			if d := diff(map[string]string{"s1": "5/0", "s2": "10/0", "s3": "5/0"}, l.tracked()); d != "" {
				t.Errorf("conntrack (-want +got):\n%s", d)
			}
			for _, c := range conns {
				if err := c.alive(); err != nil {
					t.Errorf("connection to %s: %v", c.server, err)
				}
				if c.server == "s2" {
					c.Close()
				}
			}
			l.eventually(svc, map[string]string{"s1": "5/0/0", "s2": "0/10/0", "s3": "5/0/0"})
		})
	}
}

// TestNetnsLocalClient connects from the balancer itself.
func TestNetnsLocalClient(t *testing.T) {
	l := newLab(t, 2)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	conns, got := l.connectFrom(l.balancer, svc, 4)
	if d := diff(map[string]int{"s1": 2, "s2": 2}, got); d != "" {
		t.Errorf("connections (-want +got):\n%s", d)
	}
	l.eventually(svc, map[string]string{"s1": "2/0/0", "s2": "2/0/0"})
	conns[0].Close()
	l.eventually(svc, map[string]string{"s1": "1/1/0", "s2": "2/0/0"})
}

// TestNetnsUDP keeps a flow with its server and counts it as inactive.
func TestNetnsUDP(t *testing.T) {
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			l := newLab(t, 2)
			l.open()
			svc, ops := l.service(ipvs.UDP, f)
			l.apply(ops...)
			want := []string{"s1", "s2", "s1", "s2"}
			for round := range 3 {
				for i, w := range want {
					if got, err := l.ask(svc, 2000+i); got != w || err != nil {
						t.Errorf("round %d, port %d: want %s, got %q, %v", round, 2000+i, w, got, err)
					}
				}
			}
			l.eventually(svc, map[string]string{"s1": "0/2/0", "s2": "0/2/0"})
		})
	}
}

// TestNetnsRestart ends the engine and opens the next: connections go on, counts
// are what they were before the first packet is answered, and connections that
// began meanwhile are there too.
func TestNetnsRestart(t *testing.T) {
	l := newLab(t, 3)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	l.apply(update(svc, l.servers[0].at(ipvs.IPv4), 4))
	conns, _ := l.connect(svc, 12) // 8, 2, 2
	conns[0].Close()
	closed := conns[0].server
	conns = conns[1:]
	l.until(func() string {
		if n := l.engine.inactiveCount(svc.ServiceKey); n != 1 {
			return "not yet"
		}
		return ""
	}, "one closing connection to %s", closed)
	before := l.conns(svc)
	l.stop()

	for i, c := range conns {
		if err := c.alive(); err != nil {
			t.Errorf("connection %d without an engine: %v", i, err)
		}
	}
	more, fallback := l.connect(svc, 30)
	if fallback["s1"] < 10 || fallback["s1"]+fallback["s2"]+fallback["s3"] != 30 {
		t.Errorf("connections without an engine, by weights 4, 1, 1: got %v", fallback)
	}

	l.open()
	after := l.conns(svc)
	want := addConns(before, fallback)
	if d := diff(want, after); d != "" {
		t.Errorf("counts of the next engine (-want +got):\n%s", d)
	}
	for i, c := range append(conns, more...) {
		if err := c.alive(); err != nil {
			t.Errorf("connection %d with the next engine: %v", i, err)
		}
	}
	_, got := l.connect(svc, 6)
	l.eventually(svc, addConns(want, got))
	table, err := l.engine.Table(t.Context())
	if err != nil || len(table) != 1 || table[0].Destinations[0].Weight != 4 {
		t.Errorf("table of the next engine: %+v, %v", table, err)
	}
}

func (e *Engine) inactiveCount(k ipvs.ServiceKey) (n uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.model.services[k].servers {
		n += s.sched.Inactive()
	}
	return n
}

// addConns adds active connections to counts.
func addConns(counts map[string]string, more map[string]int) map[string]string {
	out := make(map[string]string)
	for name, text := range counts {
		var c ipvs.Conns
		fmt.Sscanf(text, "%d/%d/%d", &c.Active, &c.Inactive, &c.Persistent)
		c.Active += uint32(more[name])
		out[name] = connsText(c)
	}
	return out
}

// TestNetnsStatistics counts packets and bytes of connections that live and of
// those that ended.
func TestNetnsStatistics(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	conns, _ := l.connect(svc, 2)
	const rounds = 50
	for range rounds {
		for _, c := range conns {
			if err := c.alive(); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Each round is 4 bytes and 52 of headers, at least, both ways.
	const least = 2 * rounds * 56
	before := l.stats(svc)
	if before.BytesIn < least || before.BytesOut < least || before.PacketsIn < 2*rounds || before.PacketsOut < 2*rounds {
		t.Errorf("statistics of live connections: %+v", before)
	}
	for _, c := range conns {
		if err := c.Conn.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	l.eventually(svc, map[string]string{"s1": "0/0/0"}) // conntrack keeps them for 10 s
	after := l.stats(svc)
	// An RST each came since, and nothing counts twice.
	if n := after.PacketsIn - before.PacketsIn; n > 20 || after.Connections != 2 || after.BytesIn > 3*least {
		t.Errorf("statistics at the end: %+v, before the end %+v", after, before)
	}
}
