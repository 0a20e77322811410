package userspace

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// TestNetnsLeastTime has one real server that answers late: its response time is
// seen, and it gets fewer of the next connections.
func TestNetnsLeastTime(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	const slow = 80 * time.Millisecond
	l.servers[1].delay.Store(int64(slow))
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	svc.Scheduler = "least-time"
	ops[0].Service = svc
	l.apply(ops...)
	conns, got := l.connect(svc, 4)
	if len(got) != 2 {
		t.Fatalf("the first connections went to %v", got)
	}
	ask := func(times int) {
		var wg sync.WaitGroup
		for _, c := range conns {
			wg.Go(func() {
				for range times {
					if err := c.alive(); err != nil {
						t.Errorf("request to %s: %v", c.server, err)
					}
				}
			})
		}
		wg.Wait()
	}
	ask(10)
	latency := func(i int) time.Duration {
		l.engine.mu.Lock()
		defer l.engine.mu.Unlock()
		s := l.engine.model.services[svc.ServiceKey]
		return s.servers[len(l.servers)-1-i].sched.Latency()
	}
	// A tick is 5 ms. How late a busy host is has no bound, but it is not so for
	// ever.
	l.until(func() string {
		fast, late := latency(0), latency(1)
		if late >= slow-10*time.Millisecond && 4*fast <= late {
			return ""
		}
		ask(1)
		return fmt.Sprintf("%v and %v", fast, late)
	}, "response times")
	if _, got = l.connect(svc, 20); got["s1"] < 15 {
		t.Errorf("connections with response times of %v and %v: got %v", latency(0), latency(1), got)
	}
}

// TestNetnsLeastActive has requests wait on kept-open connections: new ones go
// where fewest wait, however many connections there are.
func TestNetnsLeastActive(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	conns, got := l.connect(svc, 6)
	if got["s1"] == 0 || got["s2"] == 0 {
		t.Fatalf("the first connections went to %v", got)
	}
	// Connections that there are give signals, too.
	svc.Scheduler = "least-active"
	l.apply(editOp(svc))
	busy := func(want map[string]uint32) {
		t.Helper()
		l.until(func() string {
			got := make(map[string]uint32)
			l.engine.mu.Lock()
			for _, s := range l.engine.model.services[svc.ServiceKey].servers {
				for _, ls := range l.servers {
					if n := s.sched.Busy(); n > 0 && s.Address.Addr() == ls.v4 {
						got[ls.name] = n
					}
				}
			}
			l.engine.mu.Unlock()
			return diff(want, got)
		}, "requests that wait (-want +got)")
	}
	busy(map[string]uint32{})
	for _, s := range l.servers {
		s.delay.Store(int64(time.Hour)) // until the connection closes
	}
	asked := 0
	for _, c := range conns {
		if c.server != "s1" {
			continue
		}
		if _, err := c.Write([]byte("wait")); err != nil {
			t.Fatal(err)
		}
		asked++
	}
	busy(map[string]uint32{"s1": uint32(asked)})
	if _, got = l.connect(svc, 5); got["s2"] != 5 {
		t.Errorf("while %d requests wait at s1: got %v", asked, got)
	}
	for _, c := range conns {
		c.Close()
	}
	busy(map[string]uint32{})
}
