package daemon

import (
	"log/slog"
	"maps"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/reconcile"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// What is kept from pass to pass of servers that come, go and change is what a pass
// over all of them anew would find; what a view was given stays as it was.
func TestStatesFromPassToPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &owner{
			log: slog.New(slog.DiscardHandler), events: newEventRing(func(api.Event) {}),
			since: make(map[ipvs.DestinationKey]since), weightNews: make(map[ipvs.DestinationKey]weightNews),
		}
		// Of a pass that got through.
		report, err := new(reconcile.Reconciler).Pass(t.Context(), ipvstest.New(), reconcile.Desired{})
		if err != nil {
			t.Fatal(err)
		}
		wantSince := make(map[ipvs.DestinationKey]since)
		now := time.Unix(0, 0)
		for range rapid.IntRange(1, 12).Draw(t, "passes") {
			now = now.Add(time.Second)
			o.fleet = &fleet.Fleet{}
			next := make(map[ipvs.DestinationKey]since)
			wantAnnounced := make(map[ipvs.DestinationKey]announcement)
			for _, a := range []string{vip, vip2} {
				if rapid.IntRange(0, 5).Draw(t, "service") == 0 {
					continue
				}
				s := fleet.Service{Name: a, Service: service(a).Service}
				for _, rs := range []string{rs2, rs3, rs4} {
					if rapid.IntRange(0, 4).Draw(t, "there") == 0 {
						continue
					}
					sv := fleet.Server{Present: true, State: rapid.SampledFrom([]fleet.State{fleet.Up, fleet.Down}).Draw(t, "state")}
					sv.Address, sv.Weight = netip.MustParseAddrPort(rs), map[fleet.State]uint32{fleet.Up: 1}[sv.State]
					s.Servers = append(s.Servers, sv)
					k := ipvs.DestinationKey{Service: s.ServiceKey, Address: sv.Address}
					if next[k] = wantSince[k]; next[k].state != sv.State {
						next[k] = since{sv.State, now}
					}
					wantAnnounced[k] = announcement{s.Name, sv.State, sv.Weight, true, false}
				}
				o.fleet.Services = append(o.fleet.Services, s)
			}
			wantSince = next
			view, was := o.since, maps.Clone(o.since)
			o.announce(report)
			o.noteStates(now)
			if !maps.Equal(wantSince, o.since) {
				t.Fatalf("since: want %v, got %v", wantSince, o.since)
			}
			if !maps.Equal(wantAnnounced, o.announced) {
				t.Fatalf("announced: want %v, got %v", wantAnnounced, o.announced)
			}
			if !maps.Equal(was, view) {
				t.Fatalf("a view was changed from %v to %v", was, view)
			}
		}
	})
}
