package userspace

import (
	"fmt"
	"testing"
	"time"
)

// TestAgain ends a flow a moment after its SYN, and sends a SYN from the port.
func TestAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		seq   uint32
		pause time.Duration
		close bool
		// want is the server of the second SYN, and the connections then.
		want  string
		count uint64
	}{
		"the same":               {seq: 1, want: two, count: 1},
		"another":                {seq: 2, want: one, count: 2},
		"the same, too late":     {seq: 1, pause: 4 * time.Second, want: one, count: 2},
		"after the flow's reset": {seq: 1, close: true, want: one, count: 2},
		"read by a tick between": {seq: 1, pause: time.Second, want: two, count: 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.apply(addOp(web), add(web, one, 0), add(web, two, 1))
			tu := tupleTo(web, "198.51.100.1:1000")
			g.connect(tu, 1)
			if tt.close {
				g.kernel.reset(tu)
			}
			g.kernel.end(tu)
			if tt.pause > 0 {
				g.pass(tt.pause)
			}
			// The next choice is another.
			g.apply(update(web, one, 1), update(web, two, 0))
			if got := g.connect(tu, tt.seq); got != tt.want {
				t.Errorf("want %s, got %s", tt.want, got)
			}
			if n := g.engine.model.services[web.ServiceKey].traffic.now.connections; n != tt.count {
				t.Errorf("connections: want %d, got %d", tt.count, n)
			}
		})
	}
}

// TestAgainIsBounded ends more flows than are remembered.
func TestAgainIsBounded(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	for i := range maxAborted + 10 {
		tu := tupleTo(web, fmt.Sprintf("198.51.100.1:%d", 1000+i))
		g.connect(tu, 1)
		g.kernel.end(tu)
	}
	g.pass(time.Second)
	if n := len(g.engine.aborted); n != maxAborted {
		t.Errorf("want %d flows remembered, got %d", maxAborted, n)
	}
	g.pass(4 * time.Second)
	g.engine.forgetAborted()
	if n := len(g.engine.aborted); n != 0 {
		t.Errorf("%d flows are remembered for ever", n)
	}
}
