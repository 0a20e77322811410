package ipvstest

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lbd-project/lbd/ipvs"
)

func testService() ipvs.Service {
	return ipvs.Service{
		ServiceKey: ipvs.AddrService(ipvs.TCP, netip.MustParseAddrPort("192.0.2.10:80")),
		Scheduler:  "wlc",
	}
}

func addTestDestinations(t *testing.T, f *Fake, addresses ...string) {
	t.Helper()
	s := testService()
	ops := []ipvs.Op{{Kind: ipvs.OpAddService, Service: s}}
	for _, a := range addresses {
		ops = append(ops, ipvs.Op{Kind: ipvs.OpAddDestination, Service: s,
			Destination: ipvs.Destination{Address: netip.MustParseAddrPort(a), Weight: 1}})
	}
	if err := f.Do(ops...); err != nil {
		t.Fatal(err)
	}
}

func TestFakeKeepsConnsOfDeleted(t *testing.T) {
	f := New()
	addTestDestinations(t, f, "10.0.0.1:80")
	k := ipvs.DestinationKey{Service: testService().ServiceKey, Address: netip.MustParseAddrPort("10.0.0.1:80")}
	want := ipvs.Conns{Active: 3, Inactive: 2, Persistent: 1}
	if !f.SetConns(k, want) {
		t.Fatalf("SetConns(%v) found no real server", k)
	}
	f.Clear()
	if entries, err := f.Table(t.Context()); err != nil || len(entries) != 0 {
		t.Fatalf("after Clear: %v, %v; want an empty table", entries, err)
	}
	addTestDestinations(t, f, "10.0.0.1:80")
	ds, err := f.Destinations(t.Context(), k.Service)
	if err != nil || len(ds) != 1 {
		t.Fatalf("Destinations: %v, %v; want one", ds, err)
	}
	if diff := cmp.Diff(want, ds[0].Conns); diff != "" {
		t.Errorf("counts of a real server that came back (-want +got):\n%s", diff)
	}
	counts, err := f.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want.Persistent = 0
	if diff := cmp.Diff([]ipvs.DestinationCounts{{DestinationKey: k, Weight: 1, Conns: want}}, counts,
		cmp.Comparer(func(a, b ipvs.DestinationKey) bool { return a == b })); diff != "" {
		t.Errorf("Counts (-want +got):\n%s", diff)
	}
	if f.SetConns(ipvs.DestinationKey{}, want) {
		t.Error("SetConns of no real server reported true")
	}
}

func TestFakeRequests(t *testing.T) {
	f := New()
	s := testService()
	ctx := t.Context()
	if err := f.Do(ipvs.Op{Kind: ipvs.OpAddService, Service: s}); err != nil {
		t.Fatal(err)
	}
	f.Clear()
	if err := f.Apply(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Requests{}, f.Requests()); diff != "" {
		t.Errorf("Do, Clear and an empty batch were counted (-want +got):\n%s", diff)
	}
	add := ipvs.Op{Kind: ipvs.OpAddService, Service: s}
	del := ipvs.Op{Kind: ipvs.OpDeleteService, Service: s}
	if err := f.Apply(ctx, []ipvs.Op{add, del, del}); err == nil {
		t.Fatal("deleting twice succeeded")
	}
	if _, err := f.Table(ctx); err != nil {
		t.Fatal(err)
	}
	want := Requests{Reads: 1, Batches: 1, Writes: 3,
		Ops: map[ipvs.OpKind]int{ipvs.OpAddService: 1, ipvs.OpDeleteService: 2}}
	if diff := cmp.Diff(want, f.Requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	f.ResetRequests()
	if diff := cmp.Diff(Requests{}, f.Requests(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("after ResetRequests (-want +got):\n%s", diff)
	}
}

func TestFakeFaults(t *testing.T) {
	f := New()
	f.SetFaults(Faults{Rate: 1, Errs: []error{syscall.EBUSY}, Rand: rand.New(rand.NewPCG(1, 2))})
	add := ipvs.Op{Kind: ipvs.OpAddService, Service: testService()}
	err := f.Apply(t.Context(), []ipvs.Op{add})
	var batch *ipvs.BatchError
	if !errors.As(err, &batch) || len(batch.Failed) != 1 || !errors.Is(err, syscall.EBUSY) {
		t.Errorf("Apply with rate 1: %v; want a batch error with EBUSY", err)
	}
	if err := f.SetTimeouts(t.Context(), ipvs.Timeouts{}); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("SetTimeouts with rate 1: %v; want EBUSY", err)
	}
	f.SetFaults(Faults{ReadRate: 1, Rand: rand.New(rand.NewPCG(1, 2))})
	if _, err := f.Table(t.Context()); !errors.Is(err, syscall.EINTR) {
		t.Errorf("Table with read rate 1: %v; want EINTR", err)
	}
	f.SetFaults(Faults{})
	if entries, err := f.Table(t.Context()); err != nil || len(entries) != 0 {
		t.Errorf("a failed operation took effect: %v, %v", entries, err)
	}
}

func TestFakeLosesAnswers(t *testing.T) {
	s := testService()
	other := s
	other.Protocol = ipvs.UDP
	seen := make(map[int]bool)
	for seed := range uint64(50) {
		f := New()
		f.SetFaults(Faults{LostRate: 1, Rand: rand.New(rand.NewPCG(seed, 0))})
		err := f.Apply(t.Context(), []ipvs.Op{
			{Kind: ipvs.OpAddService, Service: s}, {Kind: ipvs.OpAddService, Service: other}})
		var batch *ipvs.BatchError
		if !errors.Is(err, syscall.ENOBUFS) || errors.As(err, &batch) {
			t.Fatalf("Apply with lost answer: %v; want ENOBUFS and no batch error", err)
		}
		entries, err := f.Table(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen[len(entries)] = true
	}
	if diff := cmp.Diff(map[int]bool{0: true, 1: true, 2: true}, seen); diff != "" {
		t.Errorf("operations that took effect over 50 seeds (-want +got):\n%s", diff)
	}
}

func TestFakeHooks(t *testing.T) {
	f := New()
	addTestDestinations(t, f, "10.0.0.1:80")
	f.SetHooks(Hooks{BeforeOp: func(ipvs.Op) { f.Clear() }})
	err := f.Apply(t.Context(), []ipvs.Op{{Kind: ipvs.OpUpdateService, Service: testService()}})
	if !errors.Is(err, ipvs.ErrServiceNotFound) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("update after somebody cleared the table: %v; want service not found", err)
	}
	f.SetHooks(Hooks{
		BeforeRead: func() { addTestDestinations(t, f, "10.0.0.1:80", "10.0.0.2:80") },
		AlterTable: func(e []ipvs.TableEntry) []ipvs.TableEntry {
			e[0].Destinations = e[0].Destinations[:1]
			return e
		}})
	entries, err := f.Table(t.Context())
	if err != nil || len(entries) != 1 || len(entries[0].Destinations) != 1 {
		t.Errorf("Table with hooks: %v, %v; want one service with one of its real servers", entries, err)
	}
}

func TestFakeNotAvailable(t *testing.T) {
	f := New()
	addTestDestinations(t, f, "10.0.0.1:80")
	f.SetAvailable(false)
	ctx := t.Context()
	_, tableErr := f.Table(ctx)
	_, servicesErr := f.Services(ctx)
	_, destinationsErr := f.Destinations(ctx, testService().ServiceKey)
	_, timeoutsErr := f.Timeouts(ctx)
	_, countsErr := f.Counts(ctx)
	_, infoErr := f.Info(ctx)
	for name, err := range map[string]error{
		"Table":        tableErr,
		"Services":     servicesErr,
		"Destinations": destinationsErr,
		"Timeouts":     timeoutsErr,
		"Counts":       countsErr,
		"Info":         infoErr,
		"Flush":        f.Flush(ctx),
		"SetTimeouts":  f.SetTimeouts(ctx, ipvs.Timeouts{}),
		"Apply":        f.Apply(ctx, []ipvs.Op{{Kind: ipvs.OpAddService, Service: testService()}}),
	} {
		if !errors.Is(err, ipvs.ErrNotAvailable) {
			t.Errorf("%s without the family: %v; want %v", name, err, ipvs.ErrNotAvailable)
		}
	}
	f.SetAvailable(true)
	if entries, err := f.Table(ctx); err != nil || entries != nil {
		t.Errorf("Table when the family is back: %v, %v; want an empty table", entries, err)
	}
}

func TestFakeContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New().Table(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Table: %v; want %v", err, context.Canceled)
	}
}
