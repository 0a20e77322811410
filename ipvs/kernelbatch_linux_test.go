package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// manyDests returns n real servers.
func manyDests(n int) []Destination {
	list := make([]Destination, n)
	for i := range list {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		list[i] = Destination{Address: netip.AddrPortFrom(a, 80), Weight: uint32(i)}
	}
	list[0].Address = netip.MustParseAddrPort("11.0.0.0:80") // 10.0.0.0 is no host
	return list
}

// TestKernelBatch names every third operation of batches of many sizes as
// failed, across the borders of sends.
func TestKernelBatch(t *testing.T) {
	c, _ := kernelClient(t)
	for _, perSend := range []int{1, 7, 100, 1000} {
		t.Run(fmt.Sprint(perSend), func(t *testing.T) {
			if err := c.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			mustApply(t, c, addService(service(kernelV4)))
			c.link.maxOps = perSend
			dests := manyDests(2500)
			var ops []Op
			var want []int
			for i, d := range dests {
				if i%3 == 2 {
					want = append(want, len(ops))
					d = dests[i-1] // exists
				}
				ops = append(ops, addDest(kernelV4, d))
			}
			err := c.Apply(t.Context(), ops)
			batch, ok := errors.AsType[*BatchError](err)
			if !ok {
				t.Fatalf("error %v, want a BatchError", err)
			}
			var got []int
			for _, f := range batch.Failed {
				if !errors.Is(f.Err, ErrDestinationExists) || f.Err.Destination != ops[f.Index].Destination.Address {
					t.Fatalf("operation %d: %v", f.Index, f.Err)
				}
				got = append(got, f.Index)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("failed operations (-want +got):\n%s", diff)
			}
			list, err := c.Destinations(t.Context(), kernelV4)
			if err != nil || len(list) != len(ops)-len(want) {
				t.Errorf("%d real servers, %v; want %d", len(list), err, len(ops)-len(want))
			}
		})
	}
}

// TestKernelSendLimit pins that a send beyond the send buffer is refused as a
// whole, which is why there is a limit of bytes.
func TestKernelSendLimit(t *testing.T) {
	c, _ := kernelClient(t)
	mustApply(t, c, addService(service(kernelV4)))
	ops := make([]Op, 0, 5000)
	for _, d := range manyDests(5000) {
		ops = append(ops, addDest(kernelV4, d))
	}
	maxOps, maxBytes := c.link.maxOps, c.link.maxBytes
	c.link.maxOps, c.link.maxBytes = len(ops), 1<<30
	err := c.Apply(t.Context(), ops)
	if !errors.Is(err, unix.EMSGSIZE) || errors.As(err, new(*BatchError)) {
		t.Errorf("5,000 requests in a send: %v, want %v", err, unix.EMSGSIZE)
	}
	if list, err := c.Destinations(t.Context(), kernelV4); err != nil || list != nil {
		t.Errorf("%d real servers, %v; want none", len(list), err)
	}
	if c.link.maxOps != maxOps || c.link.maxBytes != maxBytes {
		t.Errorf("limits of a new socket %d, %d; want %d, %d", c.link.maxOps, c.link.maxBytes, maxOps, maxBytes)
	}
	mustApply(t, c, ops...)
}

// TestKernelLongList reads a service of many datagrams in the right order.
func TestKernelLongList(t *testing.T) {
	c, _ := kernelClient(t)
	mustApply(t, c, addService(service(kernelV4)))
	want := manyDests(3000)
	var ops []Op
	for _, d := range want {
		ops = append(ops, addDest(kernelV4, d))
	}
	mustApply(t, c, ops...)
	slices.Reverse(want)
	checkDests(t, c, kernelV4, want...)
	if c.datagrams < 3 {
		t.Errorf("%d datagrams, want many", c.datagrams)
	}
	got, err := c.Counts(t.Context())
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d counts, %v; want %d", len(got), err, len(want))
	}
	for i, d := range got {
		if d.Address != want[i].Address || d.Weight != want[i].Weight {
			t.Fatalf("counts %d are of %v, weight %d; want %v, %d", i, d.Address, d.Weight, want[i].Address, want[i].Weight)
		}
	}
}

// TestKernelOverrun makes the receive buffer too small for the answers. The
// outcome is unknown then, which is no BatchError, and the next call works.
func TestKernelOverrun(t *testing.T) {
	c, _ := kernelClient(t)
	var ops []Op
	for _, d := range manyDests(900) { // the service does not exist: all fail
		ops = append(ops, addDest(kernelV4, d))
	}
	if err := c.link.conn.(*socketConn).nl.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	err := c.Apply(t.Context(), ops)
	if !errors.Is(err, unix.ENOBUFS) || errors.As(err, new(*BatchError)) {
		t.Errorf("error %v, want %v", err, unix.ENOBUFS)
	}
	err = c.Apply(t.Context(), ops)
	if batch, ok := errors.AsType[*BatchError](err); !ok || len(batch.Failed) != len(ops) {
		t.Errorf("error %v, want a BatchError of %d", err, len(ops))
	}
}

// TestKernelContext waits for an answer that never comes.
func TestKernelContext(t *testing.T) {
	c, _ := kernelClient(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := c.run(ctx, func() error {
		return c.receive(ctx, func(*message) (bool, error) { return true, nil })
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
	}
	if c.link != nil {
		t.Error("the socket was kept")
	}
	mustApply(t, c, addService(service(kernelV4)))
}
