package userspace

import (
	"fmt"
	"testing"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/ipvs"
)

// TestNetnsQuietEnds closes connections whose ends make no event, with a restart
// between: a dump finds that they are gone.
func TestNetnsQuietEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	conns, _ := l.connect(svc, 4)
	conns[0].Close()
	conns[1].Close()
	l.eventually(svc, map[string]string{"s1": "2/2/0"})
	l.stop()
	l.open()
	l.eventually(svc, map[string]string{"s1": "2/2/0"})
	conns[2].Close()
	l.eventually(svc, map[string]string{"s1": "1/3/0"})
	ev, err := conntrack.OpenEvents(conntrack.EventConfig{NetNS: l.balancer.FD(), Groups: conntrack.Destroys})
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	filter := conntrack.Filter{Mark: l.engine.marks.of(1), MarkMask: l.engine.marks.mask}
	if err := l.engine.table.Delete(t.Context(), filter); err != nil {
		t.Fatal(err)
	}
	l.eventually(svc, map[string]string{"s1": "0/0/0"})
	ends := 0
	l.until(func() string {
		ev.Drain(func(*conntrack.Event) { ends++ })
		l.engine.mu.Lock()
		defer l.engine.mu.Unlock()
		if n := l.engine.flows.Len(); n > 0 || ends != 1 {
			return fmt.Sprintf("%d flows, %d events", n, ends)
		}
		return ""
	}, "no flow, and an event of the open one alone")
	if l.engine.underflows > 0 {
		t.Error("a count would have gone below 0")
	}
}
