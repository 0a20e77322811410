package daemon

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/reconcile"
	"github.com/lbd-project/lbd/ipvs"
)

// plainTable is an engine that costs little itself: what it holds is copied to who
// reads it, and a change of a real server's weight is made in place.
type plainTable struct {
	engine
	table []ipvs.TableEntry
	index map[ipvs.DestinationKey]*ipvs.DestinationStatus
	// applied is when it was last written to.
	applied time.Time
}

func newPlainTable(table []ipvs.TableEntry) *plainTable {
	p := &plainTable{table: table, index: make(map[ipvs.DestinationKey]*ipvs.DestinationStatus)}
	for i := range table {
		for j := range table[i].Destinations {
			d := &table[i].Destinations[j]
			p.index[ipvs.DestinationKey{Service: table[i].ServiceKey, Address: d.Address}] = d
		}
	}
	return p
}

func (p *plainTable) Table(context.Context) ([]ipvs.TableEntry, error) {
	table := slices.Clone(p.table)
	n := 0
	for i := range table {
		n += len(table[i].Destinations)
	}
	all := make([]ipvs.DestinationStatus, 0, n)
	for i := range table {
		first := len(all)
		all = append(all, table[i].Destinations...)
		table[i].Destinations = all[first:len(all):len(all)]
	}
	return table, nil
}

func (p *plainTable) Counts(context.Context) ([]ipvs.DestinationCounts, error) {
	list := make([]ipvs.DestinationCounts, 0, len(p.index))
	for k, d := range p.index {
		list = append(list, ipvs.DestinationCounts{DestinationKey: k, Weight: d.Weight, Conns: d.Conns})
	}
	return list, nil
}

func (p *plainTable) Apply(_ context.Context, ops []ipvs.Op) error {
	p.applied = time.Now()
	for i := range ops {
		op := &ops[i]
		if op.Kind != ipvs.OpUpdateDestination {
			return fmt.Errorf("unexpected %v", op.Kind)
		}
		p.index[ipvs.DestinationKey{Service: op.Service.ServiceKey, Address: op.Destination.Address}].Destination = op.Destination
	}
	return nil
}

// passBench is a daemon of a number of checked real servers that is in step with
// its table, and whose check of one of them fails and passes by turns.
type passBench struct {
	*Daemon
	table *plainTable
	// health is what is known of the servers by whether that one is down.
	health map[bool]fleet.Health
	down   bool
}

func newPassBench(b *testing.B, servers int) *passBench {
	b.Helper()
	d, fake := largeDaemon(b, servers/10)
	if _, err := d.owner.pass(b.Context()); err != nil {
		b.Fatal(err)
	}
	table, err := fake.Table(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	p := &passBench{Daemon: d, table: newPlainTable(table)}
	d.owner.engine = p.table
	d.mirror.engine = p.table
	s := d.owner.fleet.Services[7]
	k := ipvs.DestinationKey{Service: s.ServiceKey, Address: s.Servers[3].Address}
	p.health = make(map[bool]fleet.Health)
	for _, down := range []bool{false, true} {
		p.health[down] = healthWith(d.owner.mem.health, k, down)
	}
	p.pass(b)
	p.flap()
	p.pass(b)
	b.ReportAllocs()
	return p
}

// flap lets the check of a real server change its mind: a pending one counts as what
// it was.
func (p *passBench) flap() {
	p.down = !p.down
	p.owner.mem.health = p.health[p.down]
}

func (p *passBench) pass(b *testing.B) reconcile.Report {
	report, err := p.owner.pass(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return report
}

// eachSize runs a benchmark with 100, 1,000 and 10,000 real servers.
func eachSize(b *testing.B, run func(b *testing.B, p *passBench)) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("servers=%d", n), func(b *testing.B) { run(b, newPassBench(b, n)) })
	}
}

// A pass after the check of one real server failed or passed again. to-write-ns is
// the time from its beginning until the table is written to. The memory is a file
// below TMPDIR, which ought to be in memory as /run is.
func BenchmarkPass(b *testing.B) {
	eachSize(b, func(b *testing.B, p *passBench) {
		var written time.Duration
		for b.Loop() {
			p.flap()
			start := time.Now()
			if r, err := p.owner.react(b.Context()); err != nil || len(r.Changes) != 1 {
				b.Fatalf("want 1 change, got %v, %v", r.Changes, err)
			}
			written += p.table.applied.Sub(start)
		}
		b.ReportMetric(float64(written)/float64(b.N), "to-write-ns/op")
	})
}

// The decision of such a pass.
func BenchmarkDecide(b *testing.B) {
	eachSize(b, func(b *testing.B, p *passBench) {
		for b.Loop() {
			p.flap()
			p.owner.decide()
		}
	})
}

// What such a pass remembers of it.
func BenchmarkRemember(b *testing.B) {
	eachSize(b, func(b *testing.B, p *passBench) {
		for b.Loop() {
			p.flap()
			if err := p.owner.remember(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// The table of such a pass.
func BenchmarkReconcile(b *testing.B) {
	eachSize(b, func(b *testing.B, p *passBench) {
		var desired [2]reconcile.Desired
		for i := range desired {
			p.flap()
			desired[i] = desiredTable(p.owner.decide(), p.owner.mem, false)
		}
		for i := 0; b.Loop(); i++ {
			r, err := p.owner.reconciler.Pass(b.Context(), p.table, desired[i%2])
			if err != nil || i > 0 && len(r.Changes) != 1 {
				b.Fatal(r.Changes, err)
			}
		}
	})
}

// What is told and shown of such a pass.
func BenchmarkFinish(b *testing.B) {
	eachSize(b, func(b *testing.B, p *passBench) {
		told := func() uint64 {
			events, _ := p.Events(0)
			return events[len(events)-1].Seq
		}
		var reports [2]reconcile.Report
		for i := range reports {
			p.flap()
			reports[i] = p.pass(b)
		}
		before := told()
		for i := 0; b.Loop(); i++ {
			p.flap()
			p.owner.fleet = p.owner.decide()
			p.owner.finish(reports[i%2], nil)
		}
		if n := told() - before; n < uint64(b.N) {
			b.Fatalf("want an event for each of %d passes, got %d", b.N, n)
		}
	})
}

// A pass that finds nothing to do.
func BenchmarkIdlePass(b *testing.B) {
	eachSize(b, func(b *testing.B, p *passBench) {
		for b.Loop() {
			p.pass(b)
		}
	})
}

// An answer of the control API to a list of everything.
func BenchmarkList(b *testing.B) {
	eachSize(b, func(b *testing.B, p *passBench) {
		for _, read := range []func(context.Context) error{p.mirror.readCounts, p.mirror.readStats} {
			if err := read(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		for b.Loop() {
			if list, err := p.Services(b.Context()); err != nil || len(list) == 0 {
				b.Fatal(len(list), err)
			}
		}
	})
}

// An answer of the control API about the state as a whole.
func BenchmarkStatus(b *testing.B) {
	eachSize(b, func(b *testing.B, p *passBench) {
		for b.Loop() {
			if _, err := p.Status(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
