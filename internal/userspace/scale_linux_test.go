package userspace

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// BenchmarkApply edits one weight in a table of 1,000 services with 20 real
// servers each, and says what it took to fill it.
func BenchmarkApply(b *testing.B) {
	netnstest.Require(b, "netns", "nfqueue")
	ns := netnstest.New(b)
	store := &fakeStore{}
	e, err := Open(b.Context(), Options{NetNS: ns.FD(), Enter: ns.Do, QueueBase: 100, FailOpen: true, Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	var fill []ipvs.Op
	for i := range 1000 {
		s := tcpService(fmt.Sprintf("192.0.%d.%d:80", i/200, i%200+1))
		fill = append(fill, addOp(s))
		for j := range 20 {
			fill = append(fill, add(s, fmt.Sprintf("10.%d.%d.%d:80", i/200, i%200, j+1), 1))
		}
	}
	start := e.clock()
	if err := e.Apply(b.Context(), fill); err != nil {
		b.Fatal(err)
	}
	b.Logf("filled in %v, the store has %d bytes", e.clock()-start, len(store.data))
	s := tcpService("192.0.2.1:80")
	w := uint32(2)
	for b.Loop() {
		w++
		if err := e.Apply(b.Context(), []ipvs.Op{update(s, "10.2.0.7:80", w)}); err != nil {
			b.Fatal(err)
		}
	}
}
