package main

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/e2e"
)

func TestSpecTexts(t *testing.T) {
	s := spec{services: 2, servers: 2}
	const wantIPVSAdm = `-A -t 198.18.0.1:80 -s wlc
-a -t 198.18.0.1:80 -r 10.0.1.1:8080 -m -w 1
-a -t 198.18.0.1:80 -r 10.0.1.2:8080 -m -w 2
-A -t 198.18.0.2:80 -s wlc
-a -t 198.18.0.2:80 -r 10.0.2.1:8080 -m -w 1
-a -t 198.18.0.2:80 -r 10.0.2.2:8080 -m -w 2
`
	if diff := cmp.Diff(wantIPVSAdm, s.ipvsadm()); diff != "" {
		t.Errorf("ipvsadm (-want +got)\n%s", diff)
	}
	const wantKeepalived = `virtual_server 198.18.0.1 80 {
  lvs_sched wlc
  lvs_method NAT
  protocol TCP
  real_server 10.0.1.1 8080 {
    weight 1
  }
}
`
	if diff := cmp.Diff(wantKeepalived, spec{1, 1}.keepalived()); diff != "" {
		t.Errorf("keepalived (-want +got)\n%s", diff)
	}
}

// TestSpecLBD sees that lbd's file means the same table as the others.
func TestSpecLBD(t *testing.T) {
	s := spec{services: 300, servers: 3}
	c, err := config.Parse("lbd.yaml", []byte(s.lbd("/run/lbd/lbd.sock")))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.verify(tableOf(c)); err != nil {
		t.Errorf("the desired table is not the spec's: %v", err)
	}
	if got, want := c.VirtualServices[299].ServiceKey, s.lastKey(); got != want {
		t.Errorf("last service: want %v, got %v", want, got)
	}
}

func tableOf(c *config.Config) e2e.Table {
	var t e2e.Table
	for _, d := range desired(c).Services {
		svc := e2e.TableService{Name: d.ServiceKey.String(), Scheduler: string(d.Scheduler)}
		for _, r := range d.Destinations {
			svc.Servers = append(svc.Servers, e2e.TableServer{Address: r.Address, Forward: r.Forward.String(), Weight: int(r.Weight)})
		}
		t = append(t, svc)
	}
	return t
}

func TestSpecVerify(t *testing.T) {
	s := spec{services: 2, servers: 2}
	c, err := config.Parse("lbd.yaml", []byte(s.lbd("/run/lbd/lbd.sock")))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		edit func(e2e.Table) e2e.Table
	}{
		{"a service less", func(t e2e.Table) e2e.Table { return t[1:] }},
		{"another service", func(t e2e.Table) e2e.Table { t[0].Name = "TCP 198.18.0.9:80"; return t }},
		{"another scheduler", func(t e2e.Table) e2e.Table { t[0].Scheduler = "rr"; return t }},
		{"a server less", func(t e2e.Table) e2e.Table { t[0].Servers = t[0].Servers[1:]; return t }},
		{"a server twice", func(t e2e.Table) e2e.Table { t[0].Servers[1] = t[0].Servers[0]; return t }},
		{"another server", func(t e2e.Table) e2e.Table {
			t[0].Servers[0].Address = netip.MustParseAddrPort("10.0.9.1:8080")
			return t
		}},
		{"another weight", func(t e2e.Table) e2e.Table { t[1].Servers[1].Weight++; return t }},
		{"another method", func(t e2e.Table) e2e.Table { t[1].Servers[1].Forward = "Route"; return t }},
	} {
		if err := s.verify(tt.edit(tableOf(c))); err == nil {
			t.Errorf("%s: want an error", tt.name)
		}
	}
	turned := tableOf(c)
	slices.Reverse(turned)
	slices.Reverse(turned[0].Servers)
	if err := s.verify(turned); err != nil {
		t.Errorf("the order must not matter: %v", err)
	}
}

func TestMedian(t *testing.T) {
	ts := make(times)
	for _, d := range []time.Duration{9, 1, 5} {
		ts.add("odd", d)
	}
	for _, d := range []time.Duration{2, 40, 4, 1} {
		ts.add("even", d)
	}
	if got := ts.median("odd"); got != 5 {
		t.Errorf("median of 9, 1, 5: want 5, got %d", got)
	}
	if got := ts.median("even"); got != 3 {
		t.Errorf("median of 2, 40, 4, 1: want 3, got %d", got)
	}
}
