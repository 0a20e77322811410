package ipvs

import (
	"context"
	"sync/atomic"
	"testing"
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
