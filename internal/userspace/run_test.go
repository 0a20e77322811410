package userspace

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/internal/nfqueue"
)

// fakeQueue is a queue that the kernel takes away where fail is set.
type fakeQueue struct{ fail error }

func (q fakeQueue) Run(ctx context.Context, _ nfqueue.Handler, _ func() bool) error {
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

// TestRunNoNews warns of no connections that the rules balanced before there was
// a queue, though their events are read only afterwards.
func TestRunNoNews(t *testing.T) {
	g := newRig(t)
	g.engine.kernelQueues = noQueues
	g.apply(addOp(web), add(web, one, 1))
	g.kernel.begin(tupleTo(web, "198.51.100.1:1000"), g.engine.marks.of(1), true)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- g.engine.Run(ctx) }()
	for end := time.Now().Add(10 * time.Second); g.engine.warnings.Load() == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	look := func() string {
		g.engine.tickEvents()
		if err := g.engine.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		return strings.Join(g.engine.Warnings(), "\n")
	}
	if got := look(); got != "" {
		t.Errorf("warnings: %s", got)
	}
	g.kernel.begin(tupleTo(web, "198.51.100.1:1001"), g.engine.marks.of(1), true)
	if got := look(); !strings.Contains(got, "did not wait for the engine") {
		t.Errorf("warnings after another: %q", got)
	}
}

// TestRepairAtOnce has rules repaired when somebody changes them, not by and by,
// and looks no more often than it should where many are changed.
func TestRepairAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		e := g.engine
		e.kernelQueues = noQueues
		e.queues = []queue{fakeQueue{}}
		g.rules.changes = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		begun := time.Now()
		for want := range uint64(3) {
			synctest.Wait()
			if got, took := e.Repairs(), time.Since(begun); got != want || took > time.Duration(want)*changePause {
				t.Errorf("want %d repairs, got %d, after %v", want, got, took)
			}
			g.rules.intact = false
			g.rules.changes <- struct{}{}
		}
		if took, want := time.Since(begun), 2*changePause; took != want {
			t.Errorf("three looks: want them in %v, got %v", want, took)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
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
