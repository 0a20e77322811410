package fleet

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
)

// method is a kind of probe that nobody runs.
type method string

func (m method) Key() string { return string(m) }
func (m method) NewChecker(netip.AddrPort, healthcheck.Env) (healthcheck.Checker, error) {
	return nil, errors.ErrUnsupported
}

func probe(kind, target string) healthcheck.Probe {
	return healthcheck.Probe{
		Method: method(kind),
		Target: netip.MustParseAddrPort(target),
		Timing: healthcheck.Timing{Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1},
	}
}

func service(vip string, servers ...config.RealServer) config.VirtualService {
	return config.VirtualService{
		Name:        vip,
		Service:     ipvs.Service{ServiceKey: key(vip), Scheduler: "wlc"},
		RealServers: servers,
	}
}

func key(vip string) ipvs.ServiceKey {
	return ipvs.AddrService(ipvs.TCP, netip.MustParseAddrPort(vip))
}

func dkey(vip, rs string) ipvs.DestinationKey {
	return ipvs.DestinationKey{Service: key(vip), Address: netip.MustParseAddrPort(rs)}
}

func server(addr string, weight uint32, probes ...healthcheck.Probe) config.RealServer {
	return config.RealServer{
		Destination:  ipvs.Destination{Address: netip.MustParseAddrPort(addr), Weight: weight},
		Probes:       probes,
		OnFailure:    config.OnFailureQuiesce,
		DrainTimeout: time.Minute,
	}
}

func probes(states map[string]healthcheck.State) func(*healthcheck.Probe) healthcheck.Status {
	return func(p *healthcheck.Probe) healthcheck.Status {
		for k, s := range states {
			if p.Method.Key() == k {
				st := healthcheck.Status{State: s, Streak: 1}
				if s == healthcheck.Down && k != "recovering" {
					st.LastErr = errors.New("connection refused")
				}
				return st
			}
		}
		return healthcheck.Status{}
	}
}

const (
	vip = "192.0.2.1:80"
	rs2 = "10.0.0.2:80"
	rs3 = "10.0.0.3:80"
)

func TestDecideServer(t *testing.T) {
	t.Parallel()
	remove := func(rs config.RealServer) config.RealServer {
		rs.OnFailure = config.OnFailureRemove
		return rs
	}
	type want struct {
		Weight, Configured uint32
		Gate               Gate
		Present            bool
		State              State
		Reason             string
		Health             Health
	}
	up, down := Health{dkey(vip, rs2): false}, Health{dkey(vip, rs2): true}
	tests := []struct {
		name   string
		server config.RealServer
		states map[string]healthcheck.State
		was    Health
		want   want
	}{
		{
			name:   "no check",
			server: server(rs2, 3),
			want:   want{3, 3, GateOpen, true, Unchecked, "no check", Health{}},
		},
		{
			name:   "up",
			server: server(rs2, 3, probe("tcp", rs2)),
			states: map[string]healthcheck.State{"tcp": healthcheck.Up},
			want:   want{3, 3, GateOpen, true, Up, "healthy", up},
		},
		{
			name:   "configured 0 is not failed",
			server: server(rs2, 0, probe("tcp", rs2)),
			states: map[string]healthcheck.State{"tcp": healthcheck.Up},
			want:   want{0, 0, GateOpen, true, Up, "configured 0; healthy", up},
		},
		{
			name:   "configured 0 and failed",
			server: server(rs2, 0, probe("tcp", rs2)),
			states: map[string]healthcheck.State{"tcp": healthcheck.Down},
			want: want{0, 0, GateFailed, true, Down,
				"configured 0; failed: tcp 10.0.0.2:80: connection refused", down},
		},
		{
			name:   "failed, quiesce",
			server: server(rs2, 3, probe("tcp", rs2)),
			states: map[string]healthcheck.State{"tcp": healthcheck.Down},
			was:    up,
			want:   want{0, 3, GateFailed, true, Down, "failed: tcp 10.0.0.2:80: connection refused", down},
		},
		{
			name:   "failed, the last check passed",
			server: server(rs2, 3, probe("recovering", rs2)),
			states: map[string]healthcheck.State{"recovering": healthcheck.Down},
			was:    down,
			want:   want{0, 3, GateFailed, true, Down, "failed: recovering 10.0.0.2:80: recovering, passed 1 of 1", down},
		},
		{
			name:   "failed, remove",
			server: remove(server(rs2, 3, probe("tcp", rs2))),
			states: map[string]healthcheck.State{"tcp": healthcheck.Down},
			want:   want{0, 3, GateFailed, false, Down, "failed: tcp 10.0.0.2:80: connection refused", down},
		},
		{
			name:   "recovered, remove",
			server: remove(server(rs2, 3, probe("tcp", rs2))),
			states: map[string]healthcheck.State{"tcp": healthcheck.Up},
			was:    down,
			want:   want{3, 3, GateOpen, true, Up, "healthy", up},
		},
		{
			name:   "new and pending counts as up",
			server: server(rs2, 3, probe("tcp", rs2)),
			want:   want{3, 3, GateOpen, true, Pending, "no result of a check yet, counts as up", up},
		},
		{
			name:   "was up and pending counts as up",
			server: server(rs2, 3, probe("tcp", rs2)),
			was:    up,
			want:   want{3, 3, GateOpen, true, Pending, "no result of a check yet, counts as up", up},
		},
		{
			name:   "was down and pending stays down",
			server: server(rs2, 3, probe("tcp", rs2)),
			was:    down,
			want:   want{0, 3, GateFailed, true, Down, "failed before; no result of a check yet", down},
		},
		{
			name:   "was down, one of two still pending",
			server: server(rs2, 3, probe("tcp", rs2), probe("http", rs2)),
			states: map[string]healthcheck.State{"tcp": healthcheck.Up},
			was:    down,
			want:   want{0, 3, GateFailed, true, Down, "failed before; no result of a check yet", down},
		},
		{
			name:   "was up, a new check is pending",
			server: server(rs2, 3, probe("tcp", rs2), probe("http", rs2)),
			states: map[string]healthcheck.State{"tcp": healthcheck.Up},
			was:    up,
			want:   want{3, 3, GateOpen, true, Pending, "no result of a check yet, counts as up", up},
		},
		{
			name:   "all checks must pass",
			server: server(rs2, 3, probe("tcp", rs2), probe("http", rs2)),
			states: map[string]healthcheck.State{"tcp": healthcheck.Up, "http": healthcheck.Down},
			was:    up,
			want:   want{0, 3, GateFailed, true, Down, "failed: http 10.0.0.2:80: connection refused", down},
		},
		{
			name:   "the last check was taken away",
			server: server(rs2, 3),
			was:    down,
			want:   want{3, 3, GateOpen, true, Unchecked, "no check", Health{}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := Decide(Input{
				Config: &config.Config{VirtualServices: []config.VirtualService{service(vip, tt.server)}},
				Probe:  probes(tt.states),
				Health: tt.was,
			})
			s := f.Services[0].Servers[0]
			got := want{s.Weight, s.Configured, s.Gate, s.Present, s.State, s.Reason, f.Health}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// How a check starts is for servers that are new. One that was up, by other checks
// or before a restart, is taken out by the first check that fails; one that was down
// comes back with the first that passes.
func TestDecideStart(t *testing.T) {
	t.Parallel()
	up, down := Health{dkey(vip, rs2): false}, Health{dkey(vip, rs2): true}
	type counts struct{ checks, failures uint64 }
	for _, tt := range []struct {
		name  string
		start healthcheck.State // and still so
		was   Health
		of    counts
		down  bool
	}{
		{"down, new", healthcheck.Down, nil, counts{}, true},
		{"down, new and on its way", healthcheck.Down, down, counts{1, 0}, true},
		{"down, was up", healthcheck.Down, up, counts{}, false},
		{"down, was up, passes", healthcheck.Down, up, counts{1, 0}, false},
		{"down, was up, fails", healthcheck.Down, up, counts{1, 1}, true},
		{"up, new", healthcheck.Up, nil, counts{}, false},
		{"up, new, fails", healthcheck.Up, up, counts{1, 1}, false},
		{"up, was down", healthcheck.Up, down, counts{}, true},
		{"up, was down, fails", healthcheck.Up, down, counts{1, 1}, true},
		{"up, was down, passes", healthcheck.Up, down, counts{2, 1}, false},
	} {
		p := probe("tcp", rs2)
		p.Start = tt.start
		f := Decide(Input{
			Config: &config.Config{VirtualServices: []config.VirtualService{service(vip, server(rs2, 3, p))}},
			Probe: func(*healthcheck.Probe) healthcheck.Status {
				return healthcheck.Status{State: tt.start, Checks: tt.of.checks, Failures: tt.of.failures}
			},
			Health: tt.was,
		})
		if got := f.Services[0].Servers[0]; (got.Weight == 0) != tt.down {
			t.Errorf("%s: want down %v, got weight %d, %s", tt.name, tt.down, got.Weight, got.Reason)
		}
	}
}

// An inserted server shifts nothing: health belongs to identities
// (keepalived#608).
func TestDecideHealthFollowsIdentity(t *testing.T) {
	t.Parallel()
	was := Health{dkey(vip, rs3): true}
	c := &config.Config{VirtualServices: []config.VirtualService{
		service(vip, server(rs2, 1, probe("new", rs2)), server(rs3, 1, probe("old", rs3))),
	}}
	f := Decide(Input{Config: c, Probe: probes(nil), Health: was})
	want := Health{dkey(vip, rs2): false, dkey(vip, rs3): true}
	if diff := cmp.Diff(want, f.Health); diff != "" {
		t.Errorf("health (-want +got):\n%s", diff)
	}
}

func TestDecideDrains(t *testing.T) {
	t.Parallel()
	deadline := time.Unix(1000, 0)
	drain := func(vip, rs string) Drain {
		d := server(rs, 5).Destination
		return Drain{Name: "old", Service: ipvs.Service{ServiceKey: key(vip), Scheduler: "rr"}, Destination: d, Deadline: deadline}
	}
	const vip2 = "192.0.2.2:80"
	f := Decide(Input{
		Config: &config.Config{VirtualServices: []config.VirtualService{service(vip, server(rs2, 1))}},
		Probe:  probes(nil),
		Health: Health{dkey(vip, rs3): true},
		Drains: Drains{drain(vip, rs3), drain(vip2, rs2), drain(vip2, rs3)},
	})
	drained := func(rs string) Server {
		d := server(rs, 0).Destination
		return Server{Destination: d, Configured: 5, Gate: GateDrained, Present: true, State: Draining,
			Reason: "drained: left the configuration", Deadline: deadline}
	}
	want := &Fleet{
		Services: []Service{
			{
				Name: vip, Service: ipvs.Service{ServiceKey: key(vip), Scheduler: "wlc"},
				Servers: []Server{
					{Destination: server(rs2, 1).Destination, Configured: 1, Present: true, State: Unchecked, Health: Unchecked,
						Chain:  []Step{{Name: StepConfigured, Weight: 1}, {Name: StepProgrammed, Weight: 1}},
						Reason: "no check", OnFailure: config.OnFailureQuiesce, DrainTimeout: time.Minute},
					drained(rs3),
				},
			},
			{
				Name: "old", Service: ipvs.Service{ServiceKey: key(vip2), Scheduler: "rr"}, Leaving: true,
				Servers: []Server{drained(rs2), drained(rs3)},
			},
		},
		Health: Health{dkey(vip, rs3): true},
		Memory: Memory{Services: map[ipvs.ServiceKey]ServiceMemory{}, Servers: map[ipvs.DestinationKey]ServerMemory{}},
	}
	if diff := cmp.Diff(want, f, cmp.Comparer(func(a, b ipvs.Service) bool { return a == b }),
		cmp.Comparer(func(a, b ipvs.Destination) bool { return a == b })); diff != "" {
		t.Errorf("fleet (-want +got):\n%s", diff)
	}
}

func TestProbesOnce(t *testing.T) {
	t.Parallel()
	p, q := probe("tcp", rs2), probe("tcp", rs3)
	c := &config.Config{VirtualServices: []config.VirtualService{
		service(vip, server(rs2, 1, p), server(rs3, 1, q)),
		service("192.0.2.2:80", server(rs2, 1, p)),
	}}
	var got []string
	for _, p := range Probes(c) {
		got = append(got, p.Key())
	}
	if diff := cmp.Diff([]string{p.Key(), q.Key()}, got); diff != "" {
		t.Errorf("probes (-want +got):\n%s", diff)
	}
}
