package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// fleet is a desired table of n services with m real servers each.
func fleet(n, m int) Desired {
	d := Desired{Owned: make(map[ipvs.ServiceKey]struct{})}
	for i := range n {
		s := DesiredService{Name: fmt.Sprintf("s%d", i),
			Service: service(fmt.Sprintf("192.0.%d.%d:80", i/250, i%250+1))}
		for j := range m {
			s.Destinations = append(s.Destinations,
				destination(fmt.Sprintf("10.%d.%d.%d:80", i/250, i%250, j+1), uint32(j%5+1)))
		}
		d.Services = append(d.Services, s)
		d.Owned[s.ServiceKey] = struct{}{}
	}
	return d
}

func mustPass(t *testing.T, r *Reconciler, f Table, d Desired) Report {
	t.Helper()
	report, err := r.Pass(t.Context(), f, d)
	if err != nil {
		t.Fatalf("Pass: %v", err)
	}
	return report
}

func checkConverged(t *testing.T, f *ipvstest.Fake, d Desired) {
	t.Helper()
	if ops := Diff(d, table(t, f)); len(ops) > 0 {
		t.Errorf("table is not as wanted, missing %d operations, first %v", len(ops), ops[0])
	}
}

func driftText(r Report) []string {
	var text []string
	for _, d := range r.Drift {
		text = append(text, d.String())
	}
	return text
}

func TestPassWritesNothingTwice(t *testing.T) {
	f, r, d := ipvstest.New(), new(Reconciler), fleet(50, 5)
	report := mustPass(t, r, f, d)
	want := map[ipvs.OpKind]int{ipvs.OpAddService: 50, ipvs.OpAddDestination: 250}
	if diff := cmp.Diff(want, report.Ops()); diff != "" {
		t.Errorf("first pass (-want +got):\n%s", diff)
	}
	checkConverged(t, f, d)
	// F21: as many programmed as wanted.
	if n := len(table(t, f)); n != 50 {
		t.Errorf("%d services in the table; want 50", n)
	}
	for _, reconciler := range []*Reconciler{r, new(Reconciler)} {
		f.ResetRequests()
		report = mustPass(t, reconciler, f, d)
		if diff := cmp.Diff(ipvstest.Requests{Reads: 1}, f.Requests()); diff != "" {
			t.Errorf("requests of a pass over a table that is right (-want +got):\n%s", diff)
		}
		if report.Rounds != 1 || len(report.Changes)+len(report.Drift)+report.Failed > 0 {
			t.Errorf("report of a pass over a table that is right: %+v", report)
		}
	}
}

func TestPassLeavesFirstInFileAtTheHead(t *testing.T) {
	f, d := ipvstest.New(), fleet(1, 3)
	mustPass(t, new(Reconciler), f, d)
	var got []ipvs.Destination
	for _, dest := range table(t, f)[0].Destinations {
		got = append(got, dest.Destination)
	}
	if diff := cmp.Diff(d.Services[0].Destinations, got, equal); diff != "" {
		t.Errorf("list order (-want +got):\n%s", diff)
	}
}

// A11: somebody's edits are undone and told in words.
func TestPassRepairsDrift(t *testing.T) {
	f, r, d := ipvstest.New(), new(Reconciler), fleet(4, 2)
	mustPass(t, r, f, d)
	s := d.Services
	heavier, stranger := s[1].Destinations[0], destination("10.9.9.9:80", 1)
	heavier.Weight = 7
	rr := s[2].Service
	rr.Scheduler = "rr"
	if err := f.Do(
		ipvs.Op{Kind: ipvs.OpDeleteService, Service: s[0].Service},
		ipvs.Op{Kind: ipvs.OpUpdateDestination, Service: s[1].Service, Destination: heavier},
		ipvs.Op{Kind: ipvs.OpDeleteDestination, Service: s[1].Service, Destination: s[1].Destinations[1]},
		ipvs.Op{Kind: ipvs.OpUpdateService, Service: rr},
		ipvs.Op{Kind: ipvs.OpAddDestination, Service: s[3].Service, Destination: stranger},
		ipvs.Op{Kind: ipvs.OpAddService, Service: service("203.0.113.1:80")}, // foreign
	); err != nil {
		t.Fatal(err)
	}
	report := mustPass(t, r, f, d)
	want := []string{
		"virtual service s0 (TCP 192.0.0.1:80): deleted",
		"real server 10.0.1.1:80 of s1 (TCP 192.0.0.2:80): weight 7, wanted 1",
		"real server 10.0.1.2:80 of s1 (TCP 192.0.0.2:80): deleted",
		"virtual service s2 (TCP 192.0.0.3:80): scheduler rr, wanted wlc",
		"real server 10.9.9.9:80 of s3 (TCP 192.0.0.4:80): added",
	}
	if diff := cmp.Diff(want, driftText(report)); diff != "" {
		t.Errorf("drift (-want +got):\n%s", diff)
	}
	checkConverged(t, f, d)
	if n := len(table(t, f)); n != 5 {
		t.Errorf("%d services in the table; want the 4 and the foreign one", n)
	}
	if report = mustPass(t, r, f, d); len(report.Drift)+len(report.Changes) > 0 {
		t.Errorf("the pass after the repair found %v and wrote %v", report.Drift, report.Changes)
	}
}

// lbd's own changes, and those before its first pass, are no drift.
func TestPassKnowsItsOwnChanges(t *testing.T) {
	f, r, d := ipvstest.New(), new(Reconciler), fleet(3, 3)
	mustPass(t, new(Reconciler), f, fleet(2, 2))
	if report := mustPass(t, r, f, d); len(report.Drift) > 0 {
		t.Errorf("first pass: %v", report.Drift)
	}
	d.Services[0].Scheduler = "rr"
	d.Services[0].Destinations = d.Services[0].Destinations[1:]
	d.Services[1].Destinations[0].Weight = 0
	d.Services = d.Services[:2]
	report := mustPass(t, r, f, d)
	if len(report.Drift) > 0 {
		t.Errorf("pass after a reload: %v", report.Drift)
	}
	if len(report.Changes) != 4 {
		t.Errorf("changes after a reload: %v; want 4", report.Changes)
	}
}

func TestPassRepairsClearInOnePass(t *testing.T) {
	f, r, d := ipvstest.New(), new(Reconciler), fleet(10, 3)
	mustPass(t, r, f, d)
	f.Clear()
	report := mustPass(t, r, f, d)
	checkConverged(t, f, d)
	if report.Rounds != 1 || len(report.Drift) != 10 {
		t.Errorf("%d rounds and %d drifts; want 1 and 10", report.Rounds, len(report.Drift))
	}
}

// A12: whatever others do to the table in the middle of a batch, the same pass
// re-creates what is missing.
func TestPassHealsRaces(t *testing.T) {
	d := fleet(3, 3)
	edited := fleet(3, 3)
	for i := range edited.Services {
		edited.Services[i].Destinations[0].Weight = 9
		edited.Services[i].Destinations = slices.Delete(edited.Services[i].Destinations, 1, 2)
	}
	foreignWeight := edited.Services[0].Destinations[0]
	foreignWeight.Weight = 42
	for _, tt := range []struct {
		name string
		race func(*testing.T, *ipvstest.Fake)
	}{
		{"everything cleared", func(_ *testing.T, f *ipvstest.Fake) { f.Clear() }},
		{"service deleted", func(t *testing.T, f *ipvstest.Fake) {
			do(t, f, ipvs.Op{Kind: ipvs.OpDeleteService, Service: d.Services[0].Service})
		}},
		{"real server deleted", func(t *testing.T, f *ipvstest.Fake) {
			do(t, f, ipvs.Op{Kind: ipvs.OpDeleteDestination, Service: d.Services[2].Service, Destination: d.Services[2].Destinations[1]})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := ipvstest.New()
				mustPass(t, new(Reconciler), f, d)
				raced := false
				f.SetHooks(ipvstest.Hooks{BeforeOp: func(ipvs.Op) {
					if !raced {
						raced = true
						tt.race(t, f)
					}
				}})
				report := mustPass(t, new(Reconciler), f, edited)
				checkConverged(t, f, edited)
				if report.Failed == 0 || report.Rounds < 2 {
					t.Errorf("%d failed operations in %d rounds; the race did not happen", report.Failed, report.Rounds)
				}
			})
		})
	}
	t.Run("service and real server created by another", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := ipvstest.New()
			raced := false
			f.SetHooks(ipvstest.Hooks{BeforeOp: func(ipvs.Op) {
				if !raced {
					raced = true
					do(t, f, ipvs.Op{Kind: ipvs.OpAddService, Service: edited.Services[0].Service},
						ipvs.Op{Kind: ipvs.OpAddDestination, Service: edited.Services[0].Service, Destination: foreignWeight})
				}
			}})
			report := mustPass(t, new(Reconciler), f, edited)
			checkConverged(t, f, edited)
			if report.Failed != 2 {
				t.Errorf("%d failed operations; want 2", report.Failed)
			}
		})
	})
}

func do(t *testing.T, f *ipvstest.Fake, ops ...ipvs.Op) {
	t.Helper()
	if err := f.Do(ops...); err != nil {
		t.Fatal(err)
	}
}

// F7, F8: a dump that misses entries is read again before anything is written.
func TestPassConfirmsAbsence(t *testing.T) {
	for _, tt := range []struct {
		name  string
		alter func([]ipvs.TableEntry) []ipvs.TableEntry
	}{
		{"service without its real servers", func(e []ipvs.TableEntry) []ipvs.TableEntry {
			e[0].Destinations = nil
			return e
		}},
		{"service missing", func(e []ipvs.TableEntry) []ipvs.TableEntry { return e[1:] }},
		{"real server missing", func(e []ipvs.TableEntry) []ipvs.TableEntry {
			e[1].Destinations = e[1].Destinations[1:]
			return e
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, r, d := ipvstest.New(), new(Reconciler), fleet(2, 3)
			mustPass(t, r, f, d)
			f.ResetRequests()
			reads := 0
			f.SetHooks(ipvstest.Hooks{AlterTable: func(e []ipvs.TableEntry) []ipvs.TableEntry {
				if reads++; reads == 1 {
					return tt.alter(e)
				}
				return e
			}})
			report := mustPass(t, r, f, d)
			if diff := cmp.Diff(ipvstest.Requests{Reads: 2}, f.Requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if len(report.Drift) > 0 {
				t.Errorf("drift: %v; want none", report.Drift)
			}
		})
	}
}

func TestPassClaimsBeforeItWrites(t *testing.T) {
	f, d := ipvstest.New(), fleet(3, 1)
	delete(d.Owned, d.Services[0].ServiceKey)
	delete(d.Owned, d.Services[2].ServiceKey)
	refuse := errors.New("no space left")
	var claimed []ipvs.ServiceKey
	r := &Reconciler{Claim: func(keys []ipvs.ServiceKey) error {
		claimed = keys
		if n := f.Requests().Writes; n > 0 {
			t.Errorf("%d writes before the claim", n)
		}
		return refuse
	}}
	report, err := r.Pass(t.Context(), f, d)
	if !errors.Is(err, refuse) {
		t.Errorf("Pass: %v; want %v", err, refuse)
	}
	// Only the service that was owned before is written.
	if got := table(t, f); len(got) != 1 || got[0].ServiceKey != d.Services[1].ServiceKey || len(report.Changes) != 2 {
		t.Errorf("after a refused claim: want the owned service alone, got %v", got)
	}
	if diff := cmp.Diff([]ipvs.ServiceKey{d.Services[0].ServiceKey, d.Services[2].ServiceKey}, claimed, equal); diff != "" {
		t.Errorf("claimed (-want +got):\n%s", diff)
	}
	refuse = nil
	f.ResetRequests()
	mustPass(t, r, f, d)
	checkConverged(t, f, d)
}

// What could not be claimed is no stranger to be deleted.
func TestPassKeepsUnclaimedOfExclusive(t *testing.T) {
	f, d := ipvstest.New(), fleet(1, 1)
	mustPass(t, new(Reconciler), f, d)
	clear(d.Owned)
	d.Exclusive = true
	r := &Reconciler{Claim: func([]ipvs.ServiceKey) error { return errors.New("no space left") }}
	if report, err := r.Pass(t.Context(), f, d); err == nil || len(report.Changes) > 0 {
		t.Errorf("Pass: want an error and no change, got %v and %v", err, report.Changes)
	}
}

func TestPassReleases(t *testing.T) {
	f, r, d := ipvstest.New(), new(Reconciler), fleet(3, 1)
	mustPass(t, r, f, d)
	never := service("192.0.2.99:80").ServiceKey
	d.Owned[never] = struct{}{}
	gone := d.Services[1].ServiceKey
	d.Services = slices.Delete(d.Services, 1, 2)
	report := mustPass(t, r, f, d)
	if diff := cmp.Diff([]ipvs.ServiceKey{gone, never}, report.Released, equal); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
}

// A dump can miss a service. That must not make lbd forget that it is its own:
// it would stay for ever, as a foreign one.
func TestPassConfirmsAbsenceBeforeRelease(t *testing.T) {
	f, d := ipvstest.New(), fleet(2, 1)
	mustPass(t, new(Reconciler), f, d)
	gone := d.Services[1].ServiceKey
	d.Services = d.Services[:1]
	f.SetHooks(ipvstest.Hooks{AlterTable: func(table []ipvs.TableEntry) []ipvs.TableEntry {
		f.SetHooks(ipvstest.Hooks{})
		return slices.DeleteFunc(table, func(e ipvs.TableEntry) bool { return e.ServiceKey == gone })
	}})
	report := mustPass(t, new(Reconciler), f, d)
	if diff := cmp.Diff([]ipvs.ServiceKey{gone}, report.Released, equal); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
	if got := table(t, f); len(got) != 1 {
		t.Errorf("table after the release: want one service, got %v", got)
	}
}

func TestPassReleasesNothingAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := ipvstest.New(), fleet(1, 1)
		d.Owned[service("192.0.2.99:80").ServiceKey] = struct{}{}
		f.SetFaults(ipvstest.Faults{Rate: 1, Rand: rand.New(rand.NewPCG(0, 0))})
		report, err := new(Reconciler).Pass(t.Context(), f, d)
		if !errors.Is(err, syscall.ENOMEM) || len(report.Released) > 0 {
			t.Errorf("Pass: %v, released %v; want ENOMEM and nothing", err, report.Released)
		}
	})
}

func TestPassRefusesDuplicates(t *testing.T) {
	f := ipvstest.New()
	d := fleet(1, 2)
	d.Services[0].Destinations[1] = d.Services[0].Destinations[0]
	twice := fleet(2, 1)
	twice.Services[1].ServiceKey = twice.Services[0].ServiceKey
	for _, desired := range []Desired{d, twice} {
		if _, err := new(Reconciler).Pass(t.Context(), f, desired); err == nil {
			t.Error("Pass took a thing that is wanted twice")
		}
	}
	if diff := cmp.Diff(ipvstest.Requests{}, f.Requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// What is invalid does not keep the rest from being written, and is not tried
// again in the same pass.
func TestPassGoesOnAfterRefusals(t *testing.T) {
	f, d := ipvstest.New(), fleet(4, 2)
	d.Services[0].Scheduler = "nosuch"
	d.Services[1].Destinations[0].LowerThreshold = 5 // above the upper one
	do(t, f, ipvs.Op{Kind: ipvs.OpAddService, Service: fleet(3, 0).Services[2].Service})
	d.Services[2].Scheduler = "nosuch"
	report, err := new(Reconciler).Pass(t.Context(), f, d)
	if !errors.Is(err, ipvs.ErrSchedulerNotFound) || !errors.Is(err, syscall.ERANGE) {
		t.Errorf("Pass: %v; want scheduler not found and ERANGE", err)
	}
	if errors.Is(err, ipvs.ErrServiceNotFound) {
		t.Errorf("Pass: %v; complains of the real servers of a service that was refused", err)
	}
	if report.Rounds != 1 {
		t.Errorf("%d rounds; want 1", report.Rounds)
	}
	got := report.Ops()
	want := map[ipvs.OpKind]int{ipvs.OpAddService: 2, ipvs.OpAddDestination: 1 + 2 + 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

// When a race makes a pass go round again, what was refused is not sent again.
func TestPassTriesRefusedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := ipvstest.New(), fleet(2, 2)
		d.Services[0].Scheduler = "nosuch"
		d.Services[1].Destinations[1].LowerThreshold = 5
		raced := false
		f.SetHooks(ipvstest.Hooks{BeforeOp: func(op ipvs.Op) {
			if !raced && op.Kind == ipvs.OpAddService && op.Service.ServiceKey == d.Services[1].ServiceKey {
				raced = true
				do(t, f, ipvs.Op{Kind: ipvs.OpAddService, Service: op.Service})
			}
		}})
		report, err := new(Reconciler).Pass(t.Context(), f, d)
		if !errors.Is(err, ipvs.ErrSchedulerNotFound) || !errors.Is(err, syscall.ERANGE) || errors.Is(err, ipvs.ErrServiceExists) {
			t.Errorf("Pass: %v; want what was refused, and that alone", err)
		}
		// The refused service with its two servers, the refused server, the race.
		if report.Rounds != 2 || report.Failed != 5 {
			t.Errorf("%d failed operations in %d rounds; want 5 in 2", report.Failed, report.Rounds)
		}
		if diff := cmp.Diff(map[ipvs.OpKind]int{ipvs.OpAddDestination: 1}, report.Ops()); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
	})
}

// scripted answers Apply with errors, then passes on to the table.
type scripted struct {
	*ipvstest.Fake
	errs []error
}

func (s *scripted) Apply(ctx context.Context, ops []ipvs.Op) error {
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return err
	}
	return s.Fake.Apply(ctx, ops)
}

func TestPassStopsAtOnce(t *testing.T) {
	denied := &ipvs.BatchError{Failed: []ipvs.FailedOp{{Index: 0, Err: &ipvs.Error{Op: "add service", Err: syscall.EPERM}}}}
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"no permission", &ipvs.Error{Op: "apply", Err: syscall.EPERM}, fs.ErrPermission},
		{"no permission for an operation", denied, fs.ErrPermission},
		{"no IPVS", &ipvs.Error{Op: "apply", Err: ipvs.ErrNotAvailable}, ipvs.ErrNotAvailable},
		{"cancelled", &ipvs.Error{Op: "apply", Err: context.Canceled}, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &scripted{Fake: ipvstest.New(), errs: []error{tt.err}}
			report, err := new(Reconciler).Pass(t.Context(), s, fleet(2, 2))
			if !errors.Is(err, tt.want) {
				t.Errorf("Pass: %v; want %v", err, tt.want)
			}
			if report.Rounds != 1 {
				t.Errorf("%d rounds; want 1", report.Rounds)
			}
		})
	}
	f := ipvstest.New()
	f.SetAvailable(false)
	if _, err := new(Reconciler).Pass(t.Context(), f, fleet(1, 1)); !errors.Is(err, ipvs.ErrNotAvailable) {
		t.Errorf("Pass without IPVS: %v; want %v", err, ipvs.ErrNotAvailable)
	}
}

func TestPassIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{Fake: ipvstest.New(), errs: slices.Repeat([]error{syscall.ENOBUFS}, 100)}
		report, err := new(Reconciler).Pass(t.Context(), s, fleet(1, 1))
		if !errors.Is(err, syscall.ENOBUFS) || report.Rounds != maxRounds {
			t.Errorf("Pass: %v after %d rounds; want ENOBUFS after %d", err, report.Rounds, maxRounds)
		}
	})
}

func TestPassEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), firstBackoff/4)
		defer cancel()
		s := &scripted{Fake: ipvstest.New(), errs: slices.Repeat([]error{syscall.ENOBUFS}, 100)}
		report, err := new(Reconciler).Pass(ctx, s, fleet(1, 1))
		if !errors.Is(err, context.DeadlineExceeded) || report.Rounds != 1 {
			t.Errorf("Pass: %v after %d rounds; want its deadline in the first wait", err, report.Rounds)
		}
	})
}
