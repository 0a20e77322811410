package ruleset

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/lbd-project/lbd/internal/userspace/tunnel"
	"github.com/lbd-project/lbd/ipvs"
)

// TestNetnsTunnel sends everything through tunnels of IP in IP, of either version
// in either.
func TestNetnsTunnel(t *testing.T) {
	for _, outer6 := range []bool{false, true} {
		for _, way := range []string{"queue", "fallback"} {
			t.Run(map[bool]string{false: "in IPv4 ", true: "in IPv6 "}[outer6]+way, func(t *testing.T) {
				l := newRouteLab(t, Options{FailOpen: true})
				if err := l.rules.Abilities().Tunnel; err != nil {
					t.Fatal(err)
				}
				for _, s := range l.servers {
					s.Unwrap()
				}
				s := routed()
				for i := range s.Servers {
					v := &s.Servers[i]
					v.Forward = ipvs.Tunnel
					// The services of even index are IPv4, and so are the first two
					// servers.
					v.Service = s.Services[i/2].ID
					v.Address = routed().Servers[i%2].Address
					if outer6 {
						v.Address = routed().Servers[2+i%2].Address
					}
				}
				l.apply(s)
				if way == "queue" {
					l.serve(to(1))
				}
				for _, addr := range routeAddresses {
					for _, network := range []string{"tcp", "udp"} {
						seen := map[string]int{}
						for range 12 {
							name, err := l.ask(l.client, network, addr)
							if err != nil {
								t.Fatalf("%s %s: %v", network, addr, err)
							}
							seen[name]++
						}
						if way == "queue" && seen["1"] != 12 || way == "fallback" && (seen["0"] == 0 || seen["1"] == 0) {
							t.Errorf("%s %s: %v", network, addr, seen)
						}
					}
					l.halfClose(addr)
					// Larger than what fits: the client must be told.
					c, _ := l.dial("tcp", addr)
					data := bytes.Repeat([]byte("0123456789"), 20<<10)
					go c.Write(data)
					back := make([]byte, len(data))
					if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(data, back) {
						t.Errorf("%s: 200 kB: %v", addr, err)
					}
				}
				if n := len(l.flows(every)); n != 0 {
					t.Errorf("connection tracking has %d entries", n)
				}
				if err := l.rules.Remove(t.Context()); err != nil {
					t.Fatal(err)
				}
				if routes := l.routes(); strings.Contains(routes, "encap") {
					t.Errorf("routes after Remove:\n%s", routes)
				}
			})
		}
	}
}

// TestNetnsTunnelEdits changes where a tunnel ends, and what cannot be a tunnel.
func TestNetnsTunnelEdits(t *testing.T) {
	l := newRouteLab(t, Options{FailOpen: true})
	for _, s := range l.servers {
		s.Unwrap()
	}
	s := routed()
	s.Services, s.Servers = s.Services[:1], s.Servers[:1]
	s.Services[0].Fallback = []Share{{mark1, 1}}
	v := &s.Servers[0]
	v.Forward, v.Service = ipvs.Tunnel, s.Services[0].ID
	for i, want := range []string{"0", "1"} {
		v.Address = routed().Servers[i].Address
		l.apply(s)
		if name, err := l.ask(l.client, "tcp", routeAddresses[0]); name != want || err != nil {
			t.Errorf("want server %s, got %q, %v", want, name, err)
		}
	}
	v.Tunnel.Type = ipvs.TunnelGRE
	if err := l.rules.Apply(t.Context(), s); err == nil || !strings.Contains(err.Error(), "tunnels of type") {
		t.Errorf("GRE: want it refused, got %v", err)
	}
	v.Tunnel = ipvs.TunnelOptions{}
	v.Address = netip.MustParseAddrPort("203.0.113.1:80") // no route there
	if err := l.rules.Apply(t.Context(), s); err != nil {
		t.Errorf("an end without a route: %v", err)
	}
	v.Address = routed().Servers[0].Address
	l.apply(s)
	if name, err := l.ask(l.client, "tcp", routeAddresses[0]); name != "0" || err != nil {
		t.Errorf("after that: want server 0, got %q, %v", name, err)
	}

	if err := l.rules.Close(); err != nil {
		t.Fatal(err)
	}
	if open := bpfFiles(t); len(open) > 0 {
		t.Errorf("open after Close: %v", open)
	}
	if name, err := l.ask(l.client, "tcp", routeAddresses[0]); name != "0" || err != nil {
		t.Errorf("closed: want server 0, got %q, %v", name, err)
	}
}

// bpfFiles returns the BPF objects that this process has open.
func bpfFiles(t *testing.T) (open []string) {
	t.Helper()
	const dir = "/proc/self/fd/"
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range list {
		if link, err := os.Readlink(dir + fd.Name()); err == nil && strings.Contains(link, "bpf") {
			open = append(open, link)
		}
	}
	return open
}

// TestNetnsTunnelRoute has the route into the tunnels back where the kernel
// deleted it, and an end that could not be reached is set once it can.
func TestNetnsTunnelRoute(t *testing.T) {
	l := newRouteLab(t, Options{FailOpen: true})
	for _, s := range l.servers {
		s.Unwrap()
	}
	s := routed()
	for i := range s.Servers {
		s.Servers[i].Forward = ipvs.Tunnel
		s.Servers[i].Service = s.Services[i/2].ID
		s.Servers[i].Address = routed().Servers[i%2].Address
	}
	l.apply(s)
	ask := func() {
		t.Helper()
		if _, err := l.ask(l.client, "tcp", routeAddresses[0]); err != nil {
			t.Error(err)
		}
	}
	intact := func() {
		t.Helper()
		if ok, err := l.rules.Intact(t.Context()); !ok || err != nil {
			t.Errorf("intact: %v, %v", ok, err)
		}
	}
	ask()
	if err := tunnel.Flows.Remove(l.lb.FD()); err != nil {
		t.Fatal(err)
	}
	intact()
	ask()

	lost := l.rules.wanted[0]
	l.rules.lost, l.rules.ends = []tunnel.End{lost}, nil
	if _, err := l.rules.tunnels.Set(l.rules.wanted[1:]); err != nil {
		t.Fatal(err)
	}
	intact()
	if len(l.rules.ends) != len(l.rules.wanted) || len(l.rules.lost) != 0 {
		t.Errorf("want all of %d ends set, got %d, and %v lost", len(l.rules.wanted), len(l.rules.ends), l.rules.lost)
	}
}
