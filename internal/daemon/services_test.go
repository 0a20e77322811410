package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/ipvs"
)

func TestServices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		foreign := ipvs.Service{ServiceKey: key("192.0.2.9:80"), Scheduler: "rr"}
		if err := r.table.Do(
			ipvs.Op{Kind: ipvs.OpAddService, Service: foreign},
			ipvs.Op{Kind: ipvs.OpAddDestination, Service: foreign, Destination: server(rs2, 5).Destination},
		); err != nil {
			t.Fatal(err)
		}
		vs := service(vip, r.checked(rs2, 3), r.checked(rs3, 2), server(rs4, 1))
		p := r.start(conf(vs))
		r.table.SetConns(dkey(vip, rs2), ipvs.Conns{Active: 7, Inactive: 8})
		r.table.SetConns(dkey(vip, rs4), ipvs.Conns{Active: 1})
		r.net.set(rs3, errRefused)
		after(decided)
		if err := p.switchTo(conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2)))); err != nil {
			t.Fatal(err)
		}
		// The mirror has read again after the write, and not waited for its tick.
		got, err := p.Services(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []api.Service{
			{
				Name: "web-192.0.2.1:80", Key: "TCP 192.0.2.1:80", Protocol: "TCP", Address: "192.0.2.1:80",
				Family: "ipv4", Scheduler: "wlc",
				RealServers: []api.RealServer{
					{Address: rs2, Forward: "Masq", ProgrammedWeight: 3, ConfiguredWeight: 3, Active: 7, Inactive: 8,
						Present: true, State: "up", Reason: "healthy",
						Checks: []api.Check{{Probe: "tcp 10.0.0.2:80", State: "up", Detail: "connected"}}},
					{Address: rs3, Forward: "Masq", ProgrammedWeight: 0, ConfiguredWeight: 2,
						Present: true, State: "down", Reason: "failed: tcp 10.0.0.3:80: connection refused",
						Checks: []api.Check{{Probe: "tcp 10.0.0.3:80", State: "down", Detail: "connection refused"}}},
					{Address: rs4, Forward: "Masq", ProgrammedWeight: 0, ConfiguredWeight: 1, Active: 1,
						Present: true, State: "draining", Reason: "drained: left the configuration; 1 active connections, deleted in 5m0s at the latest"},
				},
			},
			{
				Key: "TCP 192.0.2.9:80", Foreign: true, Protocol: "TCP", Address: "192.0.2.9:80", Family: "ipv4", Scheduler: "rr",
				RealServers: []api.RealServer{{Address: rs2, Forward: "Masq", ProgrammedWeight: 5, ConfiguredWeight: 5,
					Present: true, State: "unchecked", Reason: "not lbd's"}},
			},
		}
		opts := cmp.Options{
			cmpopts.EquateEmpty(),
			cmpopts.IgnoreFields(api.RealServer{}, "StateSeconds"),
			cmpopts.IgnoreFields(api.Check{}, "AgeSeconds", "Checks", "Failures", "LatencySeconds"),
		}
		if diff := cmp.Diff(want, got, opts); diff != "" {
			t.Errorf("services (-want +got):\n%s", diff)
		}
	})
}

// The table is read now, in its own order, whatever the mirror saw.
func TestTable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf(service(vip, server(rs2, 3), server(rs3, 2)))
		c.MirrorInterval = time.Hour
		p := r.start(c)
		d := ipvs.Destination{Address: netip.MustParseAddrPort("10.0.0.9:80"), Weight: 7}
		web := ipvs.Service{ServiceKey: key(vip)}
		if err := r.table.Do(ipvs.Op{Kind: ipvs.OpAddDestination, Service: web, Destination: d}); err != nil {
			t.Fatal(err)
		}
		table, err := p.Table(t.Context())
		if err != nil || len(table) != 1 {
			t.Fatalf("want one service, got %+v, %v", table, err)
		}
		var got []string
		for _, rs := range table[0].RealServers {
			got = append(got, fmt.Sprintf("%s %d", rs.Address, rs.ProgrammedWeight))
		}
		want := []string{"10.0.0.9:80 7", rs2 + " 3", rs3 + " 2"}
		if diff := cmp.Diff(want, got); diff != "" || table[0].Key != "TCP "+vip {
			t.Errorf("table of %s (-want +got):\n%s", table[0].Key, diff)
		}
		r.table.SetAvailable(false)
		if _, err := p.Table(t.Context()); !errors.Is(err, ipvs.ErrNotAvailable) {
			t.Errorf("without the module: want ErrNotAvailable, got %v", err)
		}
	})
}

// An absent server is not in the table, and its age of being down is that of its
// failure, over a restart too.
func TestServicesAbsent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		rs := r.checked(rs2, 3)
		rs.OnFailure = "remove"
		c := conf(service(vip, rs, r.checked(rs3, 2)))
		r.net.set(rs2, errRefused)
		p := r.start(c)
		after(30 * time.Second)
		r.net.set(rs3, errRefused) // makes it remember again
		after(30 * time.Second)
		p.kill()
		p = r.start(c)
		after(time.Minute)
		list, err := p.Services(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := list[0].RealServers[0]
		if got.Present || got.ProgrammedWeight != 0 || got.State != "down" {
			t.Errorf("want an absent server that is down, got %+v", got)
		}
		if got.StateSeconds < 119 || got.StateSeconds > 121 {
			t.Errorf("down for: want 2 minutes, got %v s", got.StateSeconds)
		}
	})
}

// What lbd wrote is seen at once, however seldom the mirror reads.
func TestServicesAfterFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2)))
		c.MirrorInterval = time.Hour
		p := r.start(c)
		after(decided)
		r.net.set(rs2, errRefused)
		after(decided)
		list, err := p.Services(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if w := list[0].RealServers[0].ProgrammedWeight; w != 0 {
			t.Errorf("programmed weight of the failed server: want 0, got %d", w)
		}
	})
}

func TestStatusCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf(
			service(vip, r.checked(rs2, 3), r.checked(rs3, 2)),
			service(vip2, r.checked(rs3, 1)),
			service("192.0.2.3:80"),
			service("192.0.2.4:80", server(rs4, 1)),
		)
		c.Sysctls = map[string]int{"expire_nodest_conn": 1}
		c.Warnings = []string{"lbd.yaml:1:1: odd"}
		p := r.start(c)
		r.net.set(rs3, errRefused)
		after(decided)
		st, err := p.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := (api.Counts{Total: 4, Up: 2, Down: 2}); st.Services != want {
			t.Errorf("services: want %+v, got %+v", want, st.Services)
		}
		if want := (api.Counts{Total: 4, Up: 2, Down: 2}); st.RealServers != want {
			t.Errorf("real servers: want %+v, got %+v", want, st.RealServers)
		}
		if st.Mirror.CountsAgeSeconds < 0 || st.Mirror.CountsAgeSeconds > 1 || st.Mirror.StatsAgeSeconds < 0 || st.Mirror.StatsAgeSeconds > 10 {
			t.Errorf("mirror: want young counts and statistics, got %+v", st.Mirror)
		}
		if st.Sysctls["expire_nodest_conn"] != 1 || len(st.Warnings) != 1 {
			t.Errorf("want the sysctl and the warning, got %v and %v", st.Sysctls, st.Warnings)
		}
	})
}

// A service that takes connections is up, and no other: health alone tells neither.
func TestStatusCountsServices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		open := service(vip, r.checked(rs2, 1), r.checked(rs3, 1))
		open.FailOpenBelow = 50
		// Another one, as the mistakes below must not make up for each other.
		too := service("192.0.2.6:80", r.checked(rs2, 1))
		too.FailOpenBelow = 100
		p := r.start(conf(open, too,
			service(vip2, r.checked(rs2, 1)),
			service("192.0.2.3:80", r.checked(rs4, 0)),
			service("192.0.2.4:80", r.checked(rs4, 1)),
			service("192.0.2.5:80", r.checked(rs4, 1)),
		))
		p.say("web-192.0.2.5:80/"+rs4, drain)
		r.net.set(rs2, errRefused)
		r.net.set(rs3, errRefused)
		after(decided)
		if got, want := p.status().Services, (api.Counts{Total: 6, Up: 3, Down: 3}); got != want {
			t.Errorf("services: want %+v, got %+v", want, got)
		}
		if got, want := p.status().RealServers, (api.Counts{Total: 7, Up: 2, Down: 4, Drained: 1}); got != want {
			t.Errorf("real servers: want %+v, got %+v", want, got)
		}
	})
}
