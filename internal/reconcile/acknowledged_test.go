package reconcile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// unacknowledged returns the real servers of d, and others, that the table is not
// known to have as wanted.
func unacknowledged(r Report, d Desired, others ...ipvs.DestinationKey) []string {
	keys := make(map[string]ipvs.DestinationKey)
	for _, s := range d.Services {
		for _, dest := range s.Destinations {
			k := ipvs.DestinationKey{Service: s.ServiceKey, Address: dest.Address}
			keys[k.String()] = k
		}
	}
	for _, k := range others {
		keys[k.String()] = k
	}
	acked := r.Acknowledged()
	maps.DeleteFunc(keys, func(_ string, k ipvs.DestinationKey) bool { return acked(k) })
	return slices.Sorted(maps.Keys(keys))
}

// What one service is refused says nothing of the others, be they written or as
// they should be before.
func TestAcknowledged(t *testing.T) {
	f, r, d := ipvstest.New(), new(Reconciler), fleet(3, 2)
	if got := unacknowledged(mustPass(t, r, f, d), d); got != nil {
		t.Errorf("all was taken: want none, got %q", got)
	}
	gone := ipvs.DestinationKey{Service: d.Services[0].ServiceKey, Address: d.Services[0].Destinations[1].Address}
	d.Services[0].Destinations = d.Services[0].Destinations[:1]
	d.Services[1].Scheduler = "nosuch" // refused, and its real servers stay
	added := DesiredService{Service: service("192.0.9.1:80"), Destinations: d.Services[2].Destinations}
	added.Scheduler = "nosuch"
	d.Services = append(d.Services, added)
	report, err := r.Pass(t.Context(), f, d)
	if !errors.Is(err, ipvs.ErrSchedulerNotFound) {
		t.Fatalf("want %v, got %v", ipvs.ErrSchedulerNotFound, err)
	}
	want := []string{"10.0.2.1:80 of TCP 192.0.9.1:80", "10.0.2.2:80 of TCP 192.0.9.1:80"}
	if diff := cmp.Diff(want, unacknowledged(report, d, gone)); diff != "" {
		t.Errorf("a service that is refused (-want +got):\n%s", diff)
	}
}

// unreadable is a table that takes operations and cannot be read.
type unreadable struct{ *ipvstest.Fake }

func (unreadable) Table(context.Context) ([]ipvs.TableEntry, error) { return nil, syscall.EINTR }

// Services that cannot be claimed are left alone, and their real servers are not as
// wanted; nor is anything known that a table does not answer about.
func TestAcknowledgedUnclaimed(t *testing.T) {
	d, full := fleet(2, 1), errors.New("no space")
	r := &Reconciler{Claim: func([]ipvs.ServiceKey) error { return full }}
	delete(d.Owned, d.Services[1].ServiceKey)
	f := ipvstest.New()
	report, err := r.Pass(t.Context(), f, d)
	if !errors.Is(err, full) {
		t.Fatalf("want %v, got %v", full, err)
	}
	if diff := cmp.Diff([]string{"10.0.1.1:80 of TCP 192.0.0.2:80"}, unacknowledged(report, d)); diff != "" {
		t.Errorf("a service that is not claimed (-want +got):\n%s", diff)
	}
	d.Services[0].Destinations[0].Weight = 0
	report, err = r.Pass(t.Context(), unreadable{f}, d)
	if !errors.Is(err, syscall.EINTR) {
		t.Fatalf("want %v, got %v", syscall.EINTR, err)
	}
	if diff := cmp.Diff([]string{"10.0.1.1:80 of TCP 192.0.0.2:80"}, unacknowledged(report, d)); diff != "" {
		t.Errorf("what was written before the table could not be read (-want +got):\n%s", diff)
	}
}
