package reconcile

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// What the fake promises holds on a kernel: a pass programs everything in the
// order of the file, reads back as wanted, and the next pass writes nothing,
// through reloads, somebody's edits and a cleared table.
func TestKernelPass(t *testing.T) {
	netnstest.Require(t, "netns", "ipvs")
	c, err := ipvs.Open(ipvs.WithNetNS(netnstest.New(t).FD()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	ctx, r := t.Context(), new(Reconciler)
	foreign := service("203.0.113.1:80")
	if err := c.AddService(ctx, foreign); err != nil {
		t.Fatal(err)
	}
	settle := func(d Desired) Report {
		t.Helper()
		report := mustPass(t, r, c, d)
		actual, err := c.Table(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ops := Diff(d, actual); len(ops) > 0 {
			t.Errorf("table is not as wanted, missing %d operations, first %v", len(ops), ops[0])
		}
		if n := len(actual); n != len(d.Services)+1 {
			t.Errorf("%d services; want %d and the foreign one", n, len(d.Services))
		}
		if again := mustPass(t, r, c, d); len(again.Changes)+len(again.Drift)+again.Failed > 0 || again.Rounds != 1 {
			t.Errorf("the next pass: %+v; want nothing", again)
		}
		return report
	}

	tables := reloads()
	settle(tables[0])
	list, err := c.Destinations(ctx, tables[0].Services[7].ServiceKey)
	if err != nil {
		t.Fatal(err)
	}
	var order []ipvs.Destination
	for _, d := range list {
		order = append(order, d.Destination)
	}
	if diff := cmp.Diff(tables[0].Services[7].Destinations, order, equal); diff != "" {
		t.Errorf("list order (-want +got):\n%s", diff)
	}
	report := settle(tables[1])
	if n := report.Ops()[ipvs.OpDeleteService]; n > 0 || len(report.Drift) > 0 {
		t.Errorf("reload deleted %d services and found drift %v", n, report.Drift)
	}

	s := tables[1].Services[3]
	heavier := s.Destinations[0]
	heavier.Weight = 7
	if err := c.UpdateDestination(ctx, s.ServiceKey, heavier); err != nil {
		t.Fatal(err)
	}
	want := []string{"real server 10.0.3.1:80 of s3 (TCP 192.0.0.4:80): weight 7, wanted 1"}
	if diff := cmp.Diff(want, driftText(settle(tables[1]))); diff != "" {
		t.Errorf("drift (-want +got):\n%s", diff)
	}

	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.AddService(ctx, foreign); err != nil {
		t.Fatal(err)
	}
	if n := len(settle(tables[1]).Drift); n != len(tables[1].Services) {
		t.Errorf("%d drifts after a flush; want one a service, %d", n, len(tables[1].Services))
	}
	if report := settle(tables[2]); len(report.Released) != 22 {
		t.Errorf("released %d services; want 22", len(report.Released))
	}
	settle(Desired{Owned: tables[2].Owned})
}
