package reconcile

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// faulty is an engine of which a tenth of everything fails: a read is
// interrupted, an operation is refused, the answer to a batch is lost after a
// part of it took effect.
type faulty struct {
	engine   Table
	rand     *rand.Rand
	injected int
}

func (f *faulty) fails() bool {
	if f.rand.IntN(10) > 0 {
		return false
	}
	f.injected++
	return true
}

func (f *faulty) Table(ctx context.Context) ([]ipvs.TableEntry, error) {
	if f.fails() {
		return nil, &ipvs.Error{Op: "read table", Err: syscall.EINTR}
	}
	return f.engine.Table(ctx)
}

func (f *faulty) Apply(ctx context.Context, ops []ipvs.Op) error {
	if f.fails() {
		if err := f.engine.Apply(ctx, ops[:f.rand.IntN(len(ops)+1)]); err != nil && !errors.As(err, new(*ipvs.BatchError)) {
			return err
		}
		return &ipvs.Error{Op: "apply", Err: syscall.ENOBUFS}
	}
	// What is refused keeps its place in the order of the failures.
	refused := make([]bool, len(ops))
	var sent []ipvs.Op
	var places []int
	for i := range ops {
		if refused[i] = f.fails(); !refused[i] {
			sent, places = append(sent, ops[i]), append(places, i)
		}
	}
	var failed []ipvs.FailedOp
	err := f.engine.Apply(ctx, sent)
	if batch, ok := errors.AsType[*ipvs.BatchError](err); ok {
		for _, op := range batch.Failed {
			failed = append(failed, ipvs.FailedOp{Index: places[op.Index], Err: op.Err})
		}
	} else if err != nil {
		return err
	}
	for i := range ops {
		if refused[i] {
			failed = append(failed, ipvs.FailedOp{Index: i, Err: &ipvs.Error{Op: ops[i].Kind.String(), Err: syscall.ENOMEM}})
		}
	}
	if len(failed) == 0 {
		return nil
	}
	slices.SortFunc(failed, func(a, b ipvs.FailedOp) int { return a.Index - b.Index })
	return &ipvs.BatchError{Failed: failed}
}

// TestKernelConvergesWithFaults is TestConvergesWithFaults on a kernel's table.
func TestKernelConvergesWithFaults(t *testing.T) {
	netnstest.Require(t, "netns", "ipvs")
	for seed := range uint64(5) {
		c, err := ipvs.Open(ipvs.WithNetNS(netnstest.New(t).FD()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		foreign := service("203.0.113.1:80")
		if err := c.AddService(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		f, r := &faulty{engine: c, rand: rand.New(rand.NewPCG(seed, 4))}, new(Reconciler)
		for i, d := range reloads() {
			var err error
			for range maxPasses {
				if _, err = r.Pass(t.Context(), f, d); err == nil {
					break
				}
			}
			if err != nil {
				t.Fatalf("seed %d, table %d: no success in %d passes, at last: %v", seed, i, maxPasses, err)
			}
			actual, err := c.Table(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if ops := Diff(d, actual); len(ops) > 0 {
				t.Errorf("seed %d, table %d: missing %d operations, first %v", seed, i, len(ops), ops[0])
			}
			if len(actual) != len(d.Services)+1 {
				t.Errorf("seed %d, table %d: %d services; want %d and the foreign one", seed, i, len(actual), len(d.Services))
			}
		}
		if f.injected < 20 {
			t.Errorf("seed %d: only %d faults", seed, f.injected)
		}
	}
}
