package fleet

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
)

// The Health that decisions hand on says of each checked server what the decision
// does, and of those that drain what was known before, whoever comes and goes. That
// of the last decision stays as it was.
func TestHealthFromDecisionToDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := Health(nil)
		for range rapid.IntRange(1, 10).Draw(t, "decisions") {
			vs, down := service(vip), make(map[string]bool)
			var drains Drains
			want := make(Health)
			for i := range 5 {
				addr := fmt.Sprintf("10.0.0.%d:80", i)
				k := ipvs.DestinationKey{Service: vs.ServiceKey, Address: netip.MustParseAddrPort(addr)}
				switch rapid.IntRange(0, 5).Draw(t, "kind") {
				case 0: // gone
				case 1:
					vs.RealServers = append(vs.RealServers, server(addr, 1))
				case 2:
					drains = append(drains, Drain{Service: vs.Service, Destination: server(addr, 1).Destination})
					if was, ok := last[k]; ok {
						want[k] = was
					}
				default:
					down[addr] = rapid.Bool().Draw(t, "down")
					vs.RealServers = append(vs.RealServers, server(addr, 1, probe(addr, addr)))
					want[k] = down[addr]
				}
			}
			before := maps.Clone(last)
			f := Decide(Input{
				Config: &config.Config{VirtualServices: []config.VirtualService{vs}},
				Probe: func(p *healthcheck.Probe) healthcheck.Status {
					if down[p.Target.String()] {
						return failed
					}
					return healthcheck.Status{State: healthcheck.Up, Checks: 1}
				},
				Health: last, Drains: drains,
			})
			if !maps.Equal(want, f.Health) || f.Health == nil {
				t.Fatalf("after %v: want %v, got %v", last, want, f.Health)
			}
			if !maps.Equal(before, last) {
				t.Fatalf("the last one was changed from %v to %v", before, last)
			}
			last = f.Health
		}
	})
}
