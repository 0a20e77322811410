package reconcile

import (
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

// A pass over a table that is right, reading included.
func BenchmarkPassNothing(b *testing.B) {
	d := fleet(1000, 20)
	f, r := filled(b, d), new(Reconciler)
	b.ReportAllocs()
	for b.Loop() {
		if report, err := r.Pass(b.Context(), f, d); err != nil || len(report.Changes) > 0 {
			b.Fatalf("%v, %d changes", err, len(report.Changes))
		}
	}
}
