package ipvs

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A context that ends just when its call does must not interrupt the next call.
func TestContextInterruptsNoOtherCall(t *testing.T) {
	k, c := newFakeKernel(t, ack(nil))
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	var set atomic.Bool
	k.received = func() {
		cancel()
		<-begun
	}
	k.interrupt = func() {
		close(begun)
		time.Sleep(10 * time.Millisecond)
		set.Store(true)
	}
	if err := c.AddService(ctx, testService(80)); err != nil {
		t.Fatal(err)
	}
	if !set.Load() {
		t.Error("the call has returned, and its deadline in the past is still to come")
	}
}

// A context that ends while its call waits for an answer ends the wait, and its
// cause is the error.
func TestContextInterruptsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newFakeKernel(t, nil)
		cause := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		start := time.Now()
		if _, err := c.Table(ctx); !errors.Is(err, cause) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v, want %v after 1s", time.Since(start), err, cause)
		}
	})
}
