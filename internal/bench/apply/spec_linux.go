package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/lbd-project/lbd/internal/e2e"
	"github.com/lbd-project/lbd/ipvs"
)

// spec is a table of TCP services, wlc and masquerading, with as many real
// servers each.
type spec struct{ services, servers int }

// vip returns the address of a service. The range is that of benchmarks.
func (s spec) vip(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i / 250), byte(i%250 + 1)}), 80)
}

// server returns the address of a real server; each is in one service only.
func (s spec) server(i, j int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i / 250), byte(i%250 + 1), byte(j + 1)}), 8080)
}

func weight(j int) int { return j%5 + 1 }

// lastKey is the service that is last in the order of every file.
func (s spec) lastKey() ipvs.ServiceKey {
	return ipvs.AddrService(ipvs.TCP, s.vip(s.services-1))
}

// render writes a text from a head for each service, a line for each of its
// servers and a tail.
func (s spec) render(b *strings.Builder, head func(vip netip.AddrPort) string, line func(vip, server netip.AddrPort, weight int) string, tail string) {
	for i := range s.services {
		b.WriteString(head(s.vip(i)))
		for j := range s.servers {
			b.WriteString(line(s.vip(i), s.server(i, j), weight(j)))
		}
		b.WriteString(tail)
	}
}

// ipvsadm returns the table as ipvsadm -R reads it.
func (s spec) ipvsadm() string {
	var b strings.Builder
	s.render(&b,
		func(vip netip.AddrPort) string { return fmt.Sprintf("-A -t %v -s wlc\n", vip) },
		func(vip, server netip.AddrPort, w int) string {
			return fmt.Sprintf("-a -t %v -r %v -m -w %d\n", vip, server, w)
		}, "")
	return b.String()
}

// keepalived returns the table as a configuration without checkers.
func (s spec) keepalived() string {
	var b strings.Builder
	s.render(&b,
		func(vip netip.AddrPort) string {
			return fmt.Sprintf("virtual_server %v %d {\n  lvs_sched wlc\n  lvs_method NAT\n  protocol TCP\n", vip.Addr(), vip.Port())
		},
		func(_, server netip.AddrPort, w int) string {
			return fmt.Sprintf("  real_server %v %d {\n    weight %d\n  }\n", server.Addr(), server.Port(), w)
		}, "}\n")
	return b.String()
}

// lbd returns the table as a configuration without checks.
func (s spec) lbd(socket string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "socket: {path: %s}\nstate_file: \"\"\nvirtual_services:\n", socket)
	s.render(&b,
		func(vip netip.AddrPort) string {
			return fmt.Sprintf("  - address: %v\n    scheduler: wlc\n    forwarding: masq\n    real_servers:\n", vip)
		},
		func(_, server netip.AddrPort, w int) string {
			return fmt.Sprintf("      - {address: %v, weight: %d}\n", server, w)
		}, "")
	return b.String()
}

// verify says how the table differs from the spec. The order of real servers is
// not compared: ipvsadm and keepalived turn it around.
func (s spec) verify(t e2e.Table) error {
	if len(t) != s.services {
		return fmt.Errorf("%d services, want %d", len(t), s.services)
	}
	want := make(map[string]int, s.services)
	for i := range s.services {
		want["TCP "+s.vip(i).String()] = i
	}
	for _, svc := range t {
		i, ok := want[svc.Name]
		if !ok || svc.Scheduler != "wlc" || len(svc.Servers) != s.servers {
			return fmt.Errorf("wrong service %s %s with %d real servers", svc.Name, svc.Scheduler, len(svc.Servers))
		}
		seen := make(map[netip.AddrPort]bool)
		for _, r := range svc.Servers {
			j := int(r.Address.Addr().As4()[3]) - 1
			if j < 0 || j >= s.servers || seen[r.Address] || r.Address != s.server(i, j) || r.Weight != weight(j) || r.Forward != "Masq" {
				return fmt.Errorf("wrong real server %+v of %s", r, svc.Name)
			}
			seen[r.Address] = true
		}
	}
	return nil
}
