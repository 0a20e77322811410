package reconcile

import (
	"context"
	"testing"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// filled is an engine that holds d.
func filled(b *testing.B, d Desired) *ipvstest.Fake {
	b.Helper()
	f := ipvstest.New()
	if err := f.Do(Diff(d, nil)...); err != nil {
		b.Fatal(err)
	}
	return f
}

func benchmarkDiff(b *testing.B, d Desired, actual []ipvs.TableEntry, want int) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		if n := len(Diff(d, actual)); n != want {
			b.Fatalf("%d operations; want %d", n, want)
		}
	}
}

// The table of 1,000 services with 20 real servers each.
func BenchmarkDiffNothing(b *testing.B) {
	d := fleet(1000, 20)
	actual, err := filled(b, d).Table(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	benchmarkDiff(b, d, actual, 0)
}

func BenchmarkDiffAll(b *testing.B) {
	benchmarkDiff(b, fleet(1000, 20), nil, 21_000)
}

func BenchmarkDiffEveryWeight(b *testing.B) {
	d := fleet(1000, 20)
	actual, err := filled(b, d).Table(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range d.Services {
		for i := range s.Destinations {
			s.Destinations[i].Weight += 10
		}
	}
	benchmarkDiff(b, d, actual, 20_000)
}

// frozen is a table that takes every operation and never changes, so that a pass
// over it costs what the Reconciler costs.
type frozen []ipvs.TableEntry

func (f frozen) Table(context.Context) ([]ipvs.TableEntry, error) { return f, nil }
func (f frozen) Apply(context.Context, []ipvs.Op) error           { return nil }

func benchmarkPass(b *testing.B, d Desired, actual []ipvs.TableEntry, want int) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		if report, err := new(Reconciler).Pass(b.Context(), frozen(actual), d); err != nil || len(report.Changes) != want {
			b.Fatalf("%v, %d changes", err, len(report.Changes))
		}
	}
}

func BenchmarkPassNothing(b *testing.B) {
	d := fleet(1000, 20)
	actual, err := filled(b, d).Table(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	benchmarkPass(b, d, actual, 0)
}

func BenchmarkPassAll(b *testing.B) {
	benchmarkPass(b, fleet(1000, 20), nil, 21_000)
}
