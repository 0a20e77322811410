package userspace

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/lbd-project/lbd/internal/nfqueue"
)

// What somebody else changed is written again, and counted.
func TestRepairs(t *testing.T) {
	g := newRig(t)
	for want := range uint64(3) {
		if got := g.engine.Repairs(); got != want {
			t.Errorf("repairs: want %d, got %d", want, got)
		}
		for range 2 { // the second time there is nothing to do
			if err := g.engine.maintain(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		g.rules.intact = false
		if err := g.engine.maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !g.rules.intact {
			t.Error("the rules are not written again")
		}
	}
}

// An engine whose queue somebody holds is not opened, whichever it is.
func TestQueuesFree(t *testing.T) {
	g := newRig(t)
	g.engine.opt.QueueBase, g.engine.opt.Queues = 100, 2
	for _, tt := range []struct {
		held []nfqueue.KernelQueue
		err  error
		want error
	}{
		{nil, nil, nil},
		{[]nfqueue.KernelQueue{{Number: 99}, {Number: 102}, {Number: 0}}, nil, nil},
		{[]nfqueue.KernelQueue{{Number: 7}, {Number: 100, PortID: 4711}}, nil, nfqueue.ErrInUse},
		{[]nfqueue.KernelQueue{{Number: 101, PortID: 4711}}, nil, nfqueue.ErrInUse},
		{nil, fmt.Errorf("open: %w", fs.ErrNotExist), nil},
		{nil, fs.ErrPermission, fs.ErrPermission},
	} {
		g.engine.kernelQueues = func() ([]nfqueue.KernelQueue, error) { return tt.held, tt.err }
		if err := g.engine.queuesFree(); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%v, %v: want %v, got %v", tt.held, tt.err, tt.want, err)
		}
	}
}
