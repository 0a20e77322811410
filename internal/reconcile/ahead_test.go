package reconcile

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

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
