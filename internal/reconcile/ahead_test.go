package reconcile

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// The weight of a failed server does not wait until a large table has been read.
func TestPassQuiescesBeforeItReads(t *testing.T) {
	f, r, d := ipvstest.New(), new(Reconciler), fleet(3, 3)
	mustPass(t, r, f, d)
	d.Services[1].Destinations[0].Weight = 0                    // on_failure: quiesce
	d.Services[2].Destinations = d.Services[2].Destinations[1:] // on_failure: remove
	f.ResetRequests()
	f.SetHooks(ipvstest.Hooks{BeforeRead: func() {
		if n := f.Requests().Writes; n != 2 {
			t.Errorf("writes before the table is read: want 2, got %d", n)
		}
	}})
	report := mustPass(t, r, f, d)
	if diff := cmp.Diff(map[ipvs.OpKind]int{ipvs.OpUpdateDestination: 1, ipvs.OpDeleteDestination: 1}, report.Ops()); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
	if len(report.Drift) > 0 {
		t.Errorf("drift: want none, got %v", report.Drift)
	}
	f.SetHooks(ipvstest.Hooks{})
	checkConverged(t, f, d)
}

// What one service needs, even if it is refused for good, does not make the failed
// server of another wait until the table has been read.
func TestPassQuiescesBesideOthers(t *testing.T) {
	for name, change := range map[string]func(*Desired){
		"an add":            func(d *Desired) { d.Services[0].Destinations = fleet(1, 3).Services[0].Destinations },
		"an edit":           func(d *Desired) { d.Services[0].Scheduler = "lc" },
		"a delete":          func(d *Desired) { d.Services = d.Services[1:] },
		"a refused service": func(d *Desired) { d.Services[0].Scheduler = "nosuch" },
		"a refused server":  func(d *Desired) { refuse(&d.Services[0]) },
	} {
		t.Run(name, func(t *testing.T) {
			f, r, d := ipvstest.New(), new(Reconciler), fleet(2, 2)
			mustPass(t, r, f, d)
			change(&d)
			s := &d.Services[len(d.Services)-1]
			for weight := range 2 { // what was refused is tried again
				s.Destinations[0].Weight = uint32(weight)
				var early []ipvs.Op
				f.ResetRequests()
				f.SetHooks(ipvstest.Hooks{BeforeOp: func(op ipvs.Op) {
					if f.Requests().Reads == 0 {
						early = append(early, op)
					}
				}})
				_, err := r.Pass(t.Context(), f, d)
				if err != nil && !errors.Is(err, ipvs.ErrSchedulerNotFound) && !errors.Is(err, syscall.ERANGE) {
					t.Fatal(err)
				}
				want := []ipvs.Op{{Kind: ipvs.OpUpdateDestination, Service: s.Service, Destination: s.Destinations[0]}}
				if diff := cmp.Diff(want, early, equal); diff != "" {
					t.Errorf("weight %d: before the table is read (-want +got):\n%s", weight, diff)
				}
			}
		})
	}
}

// refuse adds a real server that the table does not take.
func refuse(s *DesiredService) {
	d := destination("10.9.9.9:80", 1)
	d.LowerThreshold = 5 // above the upper one
	s.Destinations = append(s.Destinations, d)
}

// A new server is there before an old one goes: with something to add, the table
// is read first.
func TestPassReadsBeforeItAdds(t *testing.T) {
	f, r, d := ipvstest.New(), new(Reconciler), fleet(2, 2)
	mustPass(t, r, f, d)
	d.Services[0].Destinations[0].Weight = 0
	d.Services[0].Destinations = append(d.Services[0].Destinations, destination("10.9.9.9:80", 1))
	f.ResetRequests()
	first := true
	f.SetHooks(ipvstest.Hooks{BeforeOp: func(op ipvs.Op) {
		if first && (op.Kind != ipvs.OpAddDestination || f.Requests().Reads == 0) {
			t.Errorf("first operation: want an add after a read, got %v after %d reads", op.Kind, f.Requests().Reads)
		}
		first = false
	}})
	mustPass(t, r, f, d)
}

// What others did to the table since the last pass is healed and told all the
// same.
func TestPassAheadOfChangedTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r, d := ipvstest.New(), new(Reconciler), fleet(3, 2)
		mustPass(t, r, f, d)
		do(t, f, ipvs.Op{Kind: ipvs.OpDeleteDestination, Service: d.Services[0].Service, Destination: d.Services[0].Destinations[0]},
			ipvs.Op{Kind: ipvs.OpDeleteService, Service: d.Services[1].Service})
		for i := range d.Services {
			d.Services[i].Destinations[0].Weight = 0
		}
		report := mustPass(t, r, f, d)
		want := []string{
			"real server 10.0.0.1:80 of s0 (TCP 192.0.0.1:80): deleted",
			"virtual service s1 (TCP 192.0.0.2:80): deleted",
		}
		if diff := cmp.Diff(want, driftText(report)); diff != "" {
			t.Errorf("drift (-want +got):\n%s", diff)
		}
		checkConverged(t, f, d)
	})
}

// What Ahead says is done is what a Pass would have done, and none is left to do;
// where it is not done a Pass still makes the table the same.
func TestAheadProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := Desired{Services: genServices.Draw(t, "before"), Owned: make(map[ipvs.ServiceKey]struct{})}
		for _, s := range before.Services {
			before.Owned[s.ServiceKey] = struct{}{}
		}
		after := Desired{Owned: maps.Clone(before.Owned), Exclusive: rapid.Bool().Draw(t, "exclusive")}
		simple := true // nothing but edits and deletes of real servers
		for _, s := range before.Services {
			switch rapid.IntRange(0, 9).Draw(t, "fate") {
			case 0:
				simple = false
				continue // leaves
			case 1:
				s.Scheduler = "lc"
				simple = false
			case 2:
				d := destination("10.9.9.9:80", 1)
				d.Address = netip.AddrPortFrom(d.Address.Addr(), s.Address.Port())
				if s.Family == ipvs.IPv4 {
					s.Destinations, simple = append(slices.Clone(s.Destinations), d), false
				}
			}
			var kept []ipvs.Destination
			for _, d := range s.Destinations {
				switch rapid.IntRange(0, 3).Draw(t, "change") {
				case 0:
					continue
				case 1:
					d.Weight = uint32(rapid.IntRange(0, 3).Draw(t, "weight"))
				}
				kept = append(kept, d)
			}
			simple = simple && len(kept) <= len(s.Destinations)
			s.Destinations = kept
			after.Services = append(after.Services, s)
		}
		pass := func(r *Reconciler, f *ipvstest.Fake, d Desired) Report {
			report, err := r.Pass(t.Context(), f, d)
			if err != nil {
				t.Fatal(err)
			}
			return report
		}
		f, full := ipvstest.New(), ipvstest.New()
		var r, whole Reconciler
		pass(&r, f, before)
		pass(&whole, full, before)
		f.ResetRequests()
		report, done := r.Ahead(t.Context(), f, after)
		if n := f.Requests().Reads; n > 0 || report.Rounds > 0 {
			t.Fatalf("the table was read %d times, in %d rounds", n, report.Rounds)
		}
		if simple && !done {
			t.Fatal("want it done")
		}
		want := pass(&whole, full, after)
		if done && len(report.Changes) != len(want.Changes) {
			t.Fatalf("want %d changes, got %d", len(want.Changes), len(report.Changes))
		}
		rest := pass(&r, f, after)
		if done && len(rest.Changes) > 0 || len(rest.Drift) > 0 {
			t.Fatalf("done %v; a pass after it: changes %v, drift %v", done, rest.Changes, rest.Drift)
		}
		var tables [2][]ipvs.TableEntry
		for i, f := range []*ipvstest.Fake{full, f} {
			var err error
			if tables[i], err = f.Table(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(tables[0], tables[1], equal); diff != "" {
			t.Fatalf("table (-whole +ahead):\n%s", diff)
		}
	})
}

// Ahead does nothing where it knows nothing of the table, or is not sure whose a
// service is, and is not done where the table has changed.
func TestAheadNotDone(t *testing.T) {
	quiesce := func(d Desired) Desired {
		d.Services = slices.Clone(d.Services)
		s := &d.Services[1]
		s.Destinations = slices.Clone(s.Destinations)
		s.Destinations[0].Weight = 0
		return d
	}
	for name, tt := range map[string]struct {
		change func(f *ipvstest.Fake, r *Reconciler, d *Desired)
		writes int
	}{
		"nothing is known": {func(_ *ipvstest.Fake, r *Reconciler, _ *Desired) { *r = Reconciler{} }, 0},
		"not owned":        {func(_ *ipvstest.Fake, _ *Reconciler, d *Desired) { d.Owned = nil }, 0},
		"wanted twice": {func(_ *ipvstest.Fake, _ *Reconciler, d *Desired) {
			d.Services = append(d.Services, d.Services[0])
		}, 0},
		"deleted by somebody": {func(f *ipvstest.Fake, _ *Reconciler, d *Desired) {
			do(t, f, ipvs.Op{Kind: ipvs.OpDeleteService, Service: d.Services[1].Service})
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f, r, d := ipvstest.New(), new(Reconciler), fleet(3, 2)
			mustPass(t, r, f, d)
			d = quiesce(d)
			tt.change(f, r, &d)
			f.ResetRequests()
			if report, done := r.Ahead(t.Context(), f, d); done || len(report.Changes) > 0 {
				t.Errorf("done %v, changes %v", done, report.Changes)
			}
			if n := f.Requests().Writes; n != tt.writes {
				t.Errorf("writes: want %d, got %d", tt.writes, n)
			}
		})
	}
}
