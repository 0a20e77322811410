package rig

import (
	"testing"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
)

// TestLBDConfig sees that lbd understands its file as meant.
func TestLBDConfig(t *testing.T) {
	l := LBD{Engine: "kernel", Scheduler: "mh", Flags: "mh-port", Socket: "/run/lbd/lbd.sock", Weights: []int{3, 2, 1}}
	c, err := config.Parse("lbd.yaml", []byte(l.Config()))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.VirtualServices) != len(Ports()) {
		t.Fatalf("want %d services, got %d", len(Ports()), len(c.VirtualServices))
	}
	for i, s := range c.VirtualServices {
		if want := ipvs.AddrService(ipvs.TCP, to(Ports()[i])); s.ServiceKey != want {
			t.Errorf("service %d: want %v, got %v", i, want, s.ServiceKey)
		}
		if s.Scheduler != "mh" || s.Flags&ipvs.FlagMHPort == 0 {
			t.Errorf("service %d: want mh with mh-port, got %v %v", i, s.Scheduler, s.Flags)
		}
		if len(s.RealServers) != 3 {
			t.Fatalf("service %d: want 3 real servers, got %d", i, len(s.RealServers))
		}
		for j, r := range s.RealServers {
			if r.Address.Addr() != Server(j) || r.Address.Port() != Ports()[i] || int(r.Weight) != l.Weights[j] {
				t.Errorf("service %d, real server %d: got %v weight %d", i, j, r.Address, r.Weight)
			}
		}
	}
}
