package flowtable_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/userspace/flowtable"
)

func tuple(n uint32) flow.Tuple {
	return flow.New4(6, [4]byte{198, 51, byte(n >> 24), byte(n >> 16)}, [4]byte{192, 0, 2, 10}, uint16(n), 80)
}

// TestTableIsAMap does random inserts, deletes and sweeps on a table and on a
// map: both must always hold the same. Few tuples make them collide; many
// inserts make the parts grow.
func TestTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := flowtable.New(rapid.Uint64().Draw(t, "seed"))
		model := make(map[flow.Tuple]uint32)
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "random"), 0))
		// All of a part's share of the tuples, so that few of them fill it.
		space := rapid.SampledFrom([]int{20, 300, 20000}).Draw(t, "space")
		var serial uint32
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			k := tuple(uint32(rnd.IntN(space)))
			switch action := rnd.IntN(10); {
			case action < 5:
				serial++
				_, had := model[k]
				f, made := table.Insert(&k)
				if made == had {
					t.Fatalf("insert %v: made %v, the model had it: %v", k, made, had)
				}
				if f.Tuple() != k || made && f.Server != 0 {
					t.Fatalf("insert %v: %+v", k, *f)
				}
				f.Server = serial
				model[k] = serial
			case action < 9:
				_, want := model[k]
				if got := table.Delete(&k); got != want {
					t.Fatalf("delete %v: want %v, got %v", k, want, got)
				}
				delete(model, k)
			default:
				sweep(t, table, model, uint32(rnd.IntN(5)))
			}
			if rnd.IntN(40) == 0 { // a burst, to grow
				for range 3000 {
					k := tuple(rnd.Uint32N(uint32(space)))
					f, _ := table.Insert(&k)
					f.Server = 7
					model[k] = 7
				}
			}
		}
		same(t, table, model)
	})
}

// sweep drops the flows of servers that are r modulo 5, of all parts.
func sweep(t *rapid.T, table *flowtable.Table, model map[flow.Tuple]uint32, r uint32) {
	seen := make(map[flow.Tuple]bool)
	for part := range flowtable.Shards {
		table.Sweep(part, func(f *flowtable.Flow) bool {
			seen[f.Tuple()] = true
			return f.Server%5 == r
		})
	}
	if len(seen) != len(model) {
		t.Fatalf("a sweep saw %d flows of %d", len(seen), len(model))
	}
	for k, s := range model {
		if !seen[k] {
			t.Fatalf("a sweep did not see %v", k)
		}
		if s%5 == r {
			delete(model, k)
		}
	}
	same(t, table, model)
}

func same(t *rapid.T, table *flowtable.Table, model map[flow.Tuple]uint32) {
	if table.Len() != len(model) {
		t.Fatalf("length: want %d, got %d", len(model), table.Len())
	}
	for k, s := range model {
		if f := table.Get(&k); f == nil || f.Server != s || f.Tuple() != k {
			t.Fatalf("get %v: want server %d, got %+v", k, s, f)
		}
	}
}

// TestTableSteadyState takes a flow in and out again: in a table that has its
// size, nothing is allocated.
func TestTableSteadyState(t *testing.T) {
	table := flowtable.New(rand.Uint64())
	for i := range uint32(100000) {
		k := tuple(i)
		table.Insert(&k)
	}
	i := uint32(0)
	n := testing.AllocsPerRun(50000, func() {
		k := tuple(i)
		table.Delete(&k)
		table.Insert(&k)
		i++
	})
	if n != 0 {
		t.Errorf("%v allocations a flow", n)
	}
}

// TestTableMemory has room for few flows more than there are, while it grows and
// while it empties.
func TestTableMemory(t *testing.T) {
	table := flowtable.New(1)
	const n = 100000
	check := func() {
		t.Helper()
		if got, most := table.Slots(), table.Len()+flowtable.Shards*2*32; got > most {
			t.Errorf("%d flows: want room for %d at most, got %d", table.Len(), most, got)
		}
	}
	for i := range uint32(n) {
		k := tuple(i)
		table.Insert(&k)
		if i%7919 == 0 {
			check()
		}
	}
	for i := range uint32(n) {
		k := tuple(i)
		table.Delete(&k)
		if i%7919 == 0 {
			check()
		}
	}
}

// TestTableShrinks empties a table that was large, by a sweep a part as the
// engine does now and then.
func TestTableShrinks(t *testing.T) {
	table := flowtable.New(1)
	for i := range uint32(200000) {
		k := tuple(i)
		table.Insert(&k)
	}
	full := table.Slots()
	for range 20 {
		for part := range flowtable.Shards {
			table.Sweep(part, func(f *flowtable.Flow) bool { return true })
		}
	}
	if table.Len() != 0 || table.Slots() > full/100 {
		t.Errorf("%d flows in %d slots, of %d", table.Len(), table.Slots(), full)
	}
}

func TestInsertWithoutProtocol(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the zero tuple was inserted")
		}
	}()
	flowtable.New(1).Insert(&flow.Tuple{})
}

// BenchmarkTableMemory says what a flow takes of the heap in a table that grew to
// its size, and what all that was allocated for that took.
func BenchmarkTableMemory(b *testing.B) {
	for _, n := range []uint32{10000, 100000, 120000, 1000000} {
		b.Run(fmt.Sprintf("flows=%d", n), func(b *testing.B) {
			var before, after runtime.MemStats
			for b.Loop() {
				runtime.GC()
				runtime.ReadMemStats(&before)
				table := flowtable.New(1)
				for i := range n {
					k := tuple(i)
					table.Insert(&k)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				runtime.KeepAlive(table)
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "B/flow")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(n), "allocated/flow")
		})
	}
}

func BenchmarkTable(b *testing.B) {
	for _, n := range []uint32{1000, 100000, 1000000} {
		table := flowtable.New(rand.Uint64())
		for i := range n {
			k := flow.New(6, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 24), byte(i >> 16)}), uint16(i)), netip.MustParseAddrPort("192.0.2.1:80"))
			table.Insert(&k)
		}
		b.Run(fmt.Sprintf("flows=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				k := tuple(rand.Uint32())
				table.Get(&k)
				table.Insert(&k)
				table.Delete(&k)
			}
		})
	}
}
