package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
)

// drainKeys prints drains as "ADDRESS of SERVICE until SECONDS weight W".
func drainKeys(ds Drains) map[string]int64 {
	m := make(map[string]int64)
	for _, d := range ds {
		m[d.Key().String()] = d.Deadline.Unix()
	}
	return m
}

func conf(services ...config.VirtualService) *config.Config {
	return &config.Config{VirtualServices: services}
}

func everything(ipvs.DestinationKey) bool { return true }

func TestLeave(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	removed := server(rs3, 1, probe("tcp", rs3))
	removed.OnFailure = config.OnFailureRemove
	tests := []struct {
		name   string
		old    *config.Config
		drains Drains
		next   *config.Config
		health Health
		want   map[string]int64
	}{
		{
			name: "nothing changed",
			old:  conf(service(vip, server(rs2, 1))),
			next: conf(service(vip, server(rs2, 1))),
			want: map[string]int64{},
		},
		{
			name: "a server left",
			old:  conf(service(vip, server(rs2, 1), server(rs3, 1))),
			next: conf(service(vip, server(rs2, 1))),
			want: map[string]int64{"10.0.0.3:80 of TCP 192.0.2.1:80": 160},
		},
		{
			name: "a service left",
			old:  conf(service(vip, server(rs2, 1), server(rs3, 1))),
			next: conf(),
			want: map[string]int64{"10.0.0.2:80 of TCP 192.0.2.1:80": 160, "10.0.0.3:80 of TCP 192.0.2.1:80": 160},
		},
		{
			name:   "a failed and removed server has nothing to drain",
			old:    conf(service(vip, server(rs2, 1), removed)),
			health: Health{dkey(vip, rs3): true},
			next:   conf(service(vip, server(rs2, 1))),
			want:   map[string]int64{},
		},
		{
			name:   "a second reload keeps the deadline",
			old:    conf(service(vip, server(rs2, 1))),
			drains: Drains{{Service: ipvs.Service{ServiceKey: key(vip)}, Destination: server(rs3, 1).Destination, Deadline: time.Unix(7, 0)}},
			next:   conf(service(vip, server(rs2, 1))),
			want:   map[string]int64{"10.0.0.3:80 of TCP 192.0.2.1:80": 7},
		},
		{
			name:   "a server came back",
			old:    conf(service(vip, server(rs2, 1))),
			drains: Drains{{Service: ipvs.Service{ServiceKey: key(vip)}, Destination: server(rs3, 1).Destination, Deadline: time.Unix(7, 0)}},
			next:   conf(service(vip, server(rs2, 1), server(rs3, 1))),
			want:   map[string]int64{},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			old := Decide(Input{Config: tt.old, Probe: probes(nil), Health: tt.health, Drains: tt.drains})
			got := drainKeys(tt.drains.Leave(old, tt.next, everything, now))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("drains (-want +got):\n%s", diff)
			}
		})
	}
}

// The drain of a server remembers its configured weight, not the 0 that a
// failed check made of it.
func TestLeaveKeepsConfiguredWeight(t *testing.T) {
	t.Parallel()
	old := Decide(Input{
		Config: conf(service(vip, server(rs2, 7, probe("tcp", rs2)))),
		Probe:  probes(nil),
		Health: Health{dkey(vip, rs2): true},
	})
	if w := old.Services[0].Servers[0].Weight; w != 0 {
		t.Fatalf("weight of the failed server: want 0, got %d", w)
	}
	ds := Drains(nil).Leave(old, conf(), everything, time.Unix(0, 0))
	if got := ds[0].Destination.Weight; got != 7 {
		t.Errorf("weight in the drain: want 7, got %d", got)
	}
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	entry := func(vip string, servers ...string) ipvs.TableEntry {
		e := ipvs.TableEntry{ServiceStatus: ipvs.ServiceStatus{Service: ipvs.Service{ServiceKey: key(vip), Scheduler: "wlc"}}}
		for _, s := range servers {
			e.Destinations = append(e.Destinations, ipvs.DestinationStatus{Destination: server(s, 1).Destination})
		}
		return e
	}
	const left, foreign = "192.0.2.3:80", "192.0.2.9:80"
	table := []ipvs.TableEntry{entry(vip, rs2, rs3), entry("192.0.2.2:80", rs2), entry(left, rs2), entry(foreign, rs2)}
	drains := Drains{{Service: ipvs.Service{ServiceKey: key("192.0.2.2:80")}, Destination: server(rs2, 1).Destination, Deadline: time.Unix(7, 0)}}
	ours := map[ipvs.ServiceKey]struct{}{key(vip): {}, key("192.0.2.2:80"): {}, key(left): {}}
	c := conf(service(vip, server(rs2, 1)))
	c.DrainTimeout, c.VirtualServices[0].DrainTimeout = 30*time.Second, 20*time.Second
	adopted, refused := drains.Adopt(table, ours, c, time.Unix(100, 0))
	if len(refused) != 0 {
		t.Errorf("refused: want none, got %v", refused)
	}
	got := drainKeys(adopted)
	want := map[string]int64{
		"10.0.0.3:80 of TCP 192.0.2.1:80": 120,
		"10.0.0.2:80 of TCP 192.0.2.2:80": 7,
		"10.0.0.2:80 of TCP 192.0.2.3:80": 130,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("drains (-want +got):\n%s", diff)
	}
}

// A service is as the configuration says, not as the table did before: when it
// leaves, too, while a server of it drains, nothing of it may change back.
func TestAdoptService(t *testing.T) {
	t.Parallel()
	vs := service(vip, server(rs2, 1))
	e := ipvs.TableEntry{
		ServiceStatus: ipvs.ServiceStatus{Service: ipvs.Service{ServiceKey: key(vip), Scheduler: "rr"}},
		Destinations:  []ipvs.DestinationStatus{{Destination: server(rs3, 1).Destination}},
	}
	adopted, _ := Drains(nil).Adopt([]ipvs.TableEntry{e}, map[ipvs.ServiceKey]struct{}{key(vip): {}}, conf(vs), time.Unix(100, 0))
	f := Decide(Input{Config: conf(), Drains: adopted})
	if len(f.Services) != 1 || f.Services[0].Service != vs.Service || f.Services[0].Name != vs.Name {
		t.Errorf("leaving service: want %s, %+v, got %+v", vs.Name, vs.Service, f.Services)
	}
}

// What lbd could not give weight 0 is not drained. Tunnel options that the
// forwarding method does not use are no reason.
func TestAdoptRefuses(t *testing.T) {
	t.Parallel()
	odd := func(addr string, m ipvs.ForwardMethod, o ipvs.TunnelOptions) ipvs.DestinationStatus {
		d := server(addr, 1).Destination
		d.Forward, d.Tunnel = m, o
		return ipvs.DestinationStatus{Destination: d}
	}
	entry := ipvs.TableEntry{
		ServiceStatus: ipvs.ServiceStatus{Service: ipvs.Service{ServiceKey: key(vip), Scheduler: "wlc"}},
		Destinations: []ipvs.DestinationStatus{
			odd("10.0.0.4:80", ipvs.Masq, ipvs.TunnelOptions{Type: ipvs.TunnelGUE, Port: 6080}),
			odd("10.0.0.5:8080", ipvs.Route, ipvs.TunnelOptions{}),
			odd("10.0.0.6:80", ipvs.Bypass, ipvs.TunnelOptions{}),
		},
	}
	ours := map[ipvs.ServiceKey]struct{}{key(vip): {}}
	adopted, refused := Drains(nil).Adopt([]ipvs.TableEntry{entry}, ours, conf(service(vip)), time.Unix(100, 0))
	if len(adopted) != 1 || adopted[0].Destination != server("10.0.0.4:80", 1).Destination {
		t.Errorf("drains: want 10.0.0.4:80 without tunnel options, got %+v", adopted)
	}
	got := fmt.Sprint(refused)
	want := "[real server 10.0.0.5:8080 of TCP 192.0.2.1:80: the Route method cannot change port 80 to 8080 " +
		"real server 10.0.0.6:80 of TCP 192.0.2.1:80: forwarding method Bypass cannot be set]"
	if got != want {
		t.Errorf("refused: want\n%s\ngot\n%s", want, got)
	}
}

func TestFinish(t *testing.T) {
	t.Parallel()
	udp := ipvs.AddrService(ipvs.UDP, key(vip).Address)
	marked := ipvs.MarkService(ipvs.IPv4, 7)
	tests := []struct {
		name    string
		service ipvs.ServiceKey
		conns   ipvs.Conns
		absent  bool
		now     int64
		goesOn  bool
	}{
		{name: "active", service: key(vip), conns: ipvs.Conns{Active: 1}, goesOn: true},
		{name: "inactive only", service: key(vip), conns: ipvs.Conns{Inactive: 9}},
		{name: "idle", service: key(vip)},
		{name: "udp flows are inactive", service: udp, conns: ipvs.Conns{Inactive: 1}, goesOn: true},
		{name: "udp idle", service: udp},
		{name: "marked flows may be udp", service: marked, conns: ipvs.Conns{Inactive: 1}, goesOn: true},
		{name: "marked idle", service: marked},
		{name: "templates do not hold it", service: key(vip), conns: ipvs.Conns{Persistent: 3}},
		{name: "not counted", service: key(vip), absent: true, goesOn: true},
		{name: "not counted at the deadline", service: key(vip), absent: true, now: 100},
		{name: "before the deadline", service: key(vip), conns: ipvs.Conns{Active: 1}, now: 99, goesOn: true},
		{name: "at the deadline", service: key(vip), conns: ipvs.Conns{Active: 1}, now: 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ds := Drains{{Service: ipvs.Service{ServiceKey: tt.service}, Destination: server(rs2, 1).Destination, Deadline: time.Unix(100, 0)}}
			got := ds.Finish(func(ipvs.DestinationKey) (ipvs.Conns, bool) { return tt.conns, !tt.absent }, time.Unix(tt.now, 0))
			if goesOn := len(got) == 1; goesOn != tt.goesOn {
				t.Errorf("goes on: want %v, got %v", tt.goesOn, goesOn)
			}
			if len(ds) != 1 {
				t.Error("Finish changed its receiver")
			}
		})
	}
}
