package userspace

import (
	"context"
	"errors"
	"testing"

	"github.com/lbd-project/lbd/internal/nfqueue"
)

// fakeQueue is a queue that the kernel takes away where fail is set.
type fakeQueue struct{ fail error }

func (q fakeQueue) Run(ctx context.Context, _ func(*nfqueue.Packet) nfqueue.Verdict, _ func() bool) error {
	if q.fail != nil {
		return q.fail
	}
	<-ctx.Done()
	return nil
}

func (fakeQueue) Stats() nfqueue.Stats { return nfqueue.Stats{} }
func (fakeQueue) Close() error         { return nil }

// TestRunEnds tells a queue that is gone from the end that was asked for, whatever
// the cause that the context has for it.
func TestRunEnds(t *testing.T) {
	for name, test := range map[string]struct {
		fail, want error
	}{
		"asked":     {nil, nil},
		"one queue": {nfqueue.ErrGone, nfqueue.ErrGone},
	} {
		t.Run(name, func(t *testing.T) {
			e := newRig(t).engine
			e.kernelQueues = func() ([]nfqueue.KernelQueue, error) { return nil, nil }
			e.queues = []queue{fakeQueue{}, fakeQueue{test.fail}}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if test.fail == nil {
				cancel(errTest)
			}
			if err := e.Run(ctx); !errors.Is(err, test.want) {
				t.Errorf("want %v, got %v", test.want, err)
			}
		})
	}
}

// TestTickBusy asks for frequent ticks while there are events, and while a
// scheduler wants signals.
func TestTickBusy(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	tu := tupleTo(web, "198.51.100.1:1000")
	g.connect(tu, 1)
	busy := func(want bool) {
		t.Helper()
		if got := g.engine.tickEvents(); got != want {
			t.Errorf("busy: want %v, got %v", want, got)
		}
	}
	busy(false)
	g.kernel.end(tu)
	busy(true)
	busy(false)
	svc := web
	svc.Scheduler = "least-time"
	g.apply(editOp(svc))
	busy(true)
	g.apply(deleteOp(svc))
	busy(false)
}
