package daemon

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/ipvs"
)

// The weight is edited while the server is down: 0 while it is, the new weight
// when it recovers (keepalived#187).
func TestEditWeightWhileDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, r.checked(rs2, 11), r.checked(rs3, 2))))
		r.net.set(rs2, errRefused)
		after(decided)
		if err := p.switchTo(conf(service(vip, r.checked(rs2, 9), r.checked(rs3, 2)))); err != nil {
			t.Fatal(err)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		r.net.set(rs2, nil)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=9 10.0.0.3:80=2")
	})
}

// An inserted server does not shift the failed one's check (keepalived#608).
func TestInsertBeforeFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, r.checked(rs2, 1), r.checked(rs3, 2))))
		r.net.set(rs3, errRefused)
		after(decided)
		if err := p.switchTo(conf(service(vip, r.checked(rs4, 7), r.checked(rs2, 1), r.checked(rs3, 2)))); err != nil {
			t.Fatal(err)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.4:80=7 10.0.0.2:80=1 10.0.0.3:80=0")
		r.net.set(rs3, nil)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.4:80=7 10.0.0.2:80=1 10.0.0.3:80=2")
	})
}

// A reload without a change writes nothing, with a failed server too
// (keepalived#106).
func TestReloadWithoutChange(t *testing.T) {
	t.Parallel()
	for _, policy := range []config.OnFailure{config.OnFailureQuiesce, config.OnFailureRemove} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				rs := r.checked(rs2, 3)
				rs.OnFailure = policy
				c := conf(service(vip, rs, r.checked(rs3, 2)))
				p := r.start(c)
				r.net.set(rs2, errRefused)
				after(decided)
				before := r.tableText()
				r.table.ResetRequests()
				for range 3 {
					if err := p.switchTo(c); err != nil {
						t.Fatal(err)
					}
					after(2 * time.Second)
				}
				if n := r.table.Requests().Writes; n != 0 {
					t.Errorf("writes of three reloads without a change: want 0, got %d", n)
				}
				r.wantTable(strings.TrimSuffix(before, "\n"))
			})
		})
	}
}

// Weight 0 in the file is a weight, not a default and not a failure
// (keepalived#1757).
func TestConfiguredZero(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, r.checked(rs2, 0), r.checked(rs3, 2))))
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		if s, reason := p.stateOf(vip, rs2); s != fleet.Up || reason != "configured 0; healthy" {
			t.Errorf("state: want up (configured 0; healthy), got %s (%s)", s, reason)
		}
		r.net.set(rs2, errRefused)
		after(decided)
		if s, reason := p.stateOf(vip, rs2); s != fleet.Down || !strings.Contains(reason, "connection refused") {
			t.Errorf("state: want down for a refused connection, got %s (%s)", s, reason)
		}
	})
}

// The check itself was wrong: a reload that mends it brings the server back
// (keepalived#1720).
func TestMendCheck(t *testing.T) {
	t.Parallel()
	for _, policy := range []config.OnFailure{config.OnFailureQuiesce, config.OnFailureRemove} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				rs := r.checked(rs2, 3)
				rs.OnFailure = policy
				rs.Probes = []healthcheck.Probe{r.probe("tcp", "10.0.0.2:9999")}
				r.net.set("10.0.0.2:9999", errRefused)
				p := r.start(conf(service(vip, rs, r.checked(rs3, 2))))
				after(decided)
				rs.Probes = []healthcheck.Probe{r.probe("tcp", rs2)}
				if err := p.switchTo(conf(service(vip, rs, r.checked(rs3, 2)))); err != nil {
					t.Fatal(err)
				}
				after(decided)
				r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2")
			})
		})
	}
}

// A check that is added to a server in service does not take it out until the
// check has failed (keepalived e8456452).
func TestAddCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3))))
		r.net.set(rs2, errRefused)
		r.net.slow(900 * time.Millisecond)
		r.table.ResetRequests()
		if err := p.switchTo(conf(service(vip, r.checked(rs2, 3)))); err != nil {
			t.Fatal(err)
		}
		after(500 * time.Millisecond)
		if n := r.table.Requests().Writes; n != 0 {
			t.Errorf("writes before the first result: want 0, got %d", n)
		}
		after(time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0")
	})
}

// Nor does one that starts down, not while its first results come either, nor a
// restart: only who is new waits for the checks (keepalived 32968e52).
func TestStartDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		wait := func(addr string) config.RealServer {
			rs := r.checked(addr, 3)
			rs.Probes[0].Start = healthcheck.Down
			return rs
		}
		p := r.start(conf(service(vip, server(rs2, 3))))
		r.net.slow(900 * time.Millisecond)
		if err := p.switchTo(conf(service(vip, wait(rs2), wait(rs3)))); err != nil {
			t.Fatal(err)
		}
		weights := func(when string, want ...int) {
			t.Helper()
			got := []int{r.weightOf(rs2), r.weightOf(rs3), r.weightOf(rs4)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("weights %s (-want +got):\n%s", when, diff)
			}
		}
		weights("after the reload", 3, 0, -1)
		writes := 0
		r.table.SetHooks(hooks(func(op ipvs.Op) {
			if op.Destination.Address == netip.MustParseAddrPort(rs2) {
				writes++
			}
		}))
		after(decided)
		weights("after the checks", 3, 3, -1)
		p.kill()
		p = r.start(conf(service(vip, wait(rs2), wait(rs3), wait(rs4))))
		weights("after a restart", 3, 3, 0)
		after(decided)
		if writes != 0 {
			t.Errorf("writes to the server that was up: want 0, got %d", writes)
		}
		p.kill()
		r.net.set(rs2, errRefused)
		r.start(conf(service(vip, wait(rs2), wait(rs3), wait(rs4))))
		after(time.Second + 100*time.Millisecond)
		weights("after one that failed", 0, 3, 3)
	})
}

// A result of a check that the configuration no longer has changes nothing
// (dpvs#919).
func TestLateResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, r.checked(rs2, 10), r.checked(rs3, 2))))
		after(decided)
		r.net.set(rs2, errRefused)
		r.net.slow(900 * time.Millisecond)
		after(1500 * time.Millisecond) // one failed, the deciding one in flight
		r.net.set(rs2, nil)
		rs := r.checked(rs2, 5)
		rs.Probes = []healthcheck.Probe{r.probe("http", rs2)}
		if err := p.switchTo(conf(service(vip, rs, r.checked(rs3, 2)))); err != nil {
			t.Fatal(err)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=5 10.0.0.3:80=2")
		r.table.ResetRequests()
		after(10 * time.Second)
		if n := r.table.Requests().Writes; n != 0 {
			t.Errorf("writes after the reload: want 0, got %d\n%s", n, r.log)
		}
	})
}

// A service that left does not come back by a check that was under way
// (seesaw 7cea7d2).
func TestRemovedServiceStaysAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.net.slow(900 * time.Millisecond)
		p := r.start(conf(service(vip, r.checked(rs2, 1)), service(vip2, r.checked(rs3, 1))))
		after(1500 * time.Millisecond)
		if err := p.switchTo(conf(service(vip2, r.checked(rs3, 1)))); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Second)
		r.wantTable("TCP 192.0.2.2:80 wlc: 10.0.0.3:80=1")
		if n := r.net.checked(rs2); n > 3 {
			t.Errorf("checks of a server that left: want none after the reload, got %d in all", n)
		}
	})
}

// Every attribute is edited in place: no connection is lost by a delete and an
// add (dpvs#891). Another protocol is another service.
func TestAttributesInPlace(t *testing.T) {
	t.Parallel()
	type edit struct {
		name string
		edit func(*config.VirtualService)
		want map[ipvs.OpKind]int
	}
	one := func(k ipvs.OpKind) map[ipvs.OpKind]int { return map[ipvs.OpKind]int{k: 1} }
	svc := func(name string, f func(*ipvs.Service)) edit {
		return edit{name, func(vs *config.VirtualService) { f(&vs.Service) }, one(ipvs.OpUpdateService)}
	}
	dst := func(name string, f func(*ipvs.Destination)) edit {
		return edit{name, func(vs *config.VirtualService) { f(&vs.RealServers[0].Destination) }, one(ipvs.OpUpdateDestination)}
	}
	persistent := func(s *ipvs.Service) {
		s.Flags |= ipvs.FlagPersistent
		s.Persistence.Timeout = 5 * time.Minute
	}
	edits := []edit{
		svc("scheduler", func(s *ipvs.Service) { s.Scheduler = "rr" }),
		svc("scheduler flags", func(s *ipvs.Service) { s.Flags |= ipvs.FlagSched2 }),
		svc("persistence", persistent),
		svc("persistence netmask", func(s *ipvs.Service) {
			persistent(s)
			s.Persistence.Netmask = ipvs.NetmaskV4(netip.MustParseAddr("255.255.255.0"))
		}),
		svc("one packet", func(s *ipvs.Service) { s.Flags |= ipvs.FlagOnePacket }),
		dst("weight", func(d *ipvs.Destination) { d.Weight = 9 }),
		dst("weight 0", func(d *ipvs.Destination) { d.Weight = 0 }),
		dst("forwarding", func(d *ipvs.Destination) { d.Forward = ipvs.Route }),
		dst("tunnel", func(d *ipvs.Destination) {
			d.Forward = ipvs.Tunnel
			d.Tunnel = ipvs.TunnelOptions{Type: ipvs.TunnelGUE, Port: 6080}
		}),
		dst("upper threshold", func(d *ipvs.Destination) { d.UpperThreshold = 10 }),
		dst("lower threshold", func(d *ipvs.Destination) { d.UpperThreshold, d.LowerThreshold = 10, 2 }),
	}
	for _, e := range edits {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				p := r.start(conf(service(vip, server(rs2, 3), server(rs3, 2))))
				r.table.ResetRequests()
				vs := service(vip, server(rs2, 3), server(rs3, 2))
				e.edit(&vs)
				if err := p.switchTo(conf(vs)); err != nil {
					t.Fatal(err)
				}
				ops := r.table.Requests().Ops
				for k, n := range ops {
					if e.want[k] != n {
						t.Errorf("%v: want %d, got %d", k, e.want[k], n)
					}
				}
				if len(ops) != len(e.want) {
					t.Errorf("operations: want %v, got %v", e.want, ops)
				}
				table, err := r.table.Table(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if want := vs.Service.Canonical(); table[0].Service.Canonical() != want {
					t.Errorf("service: want %+v, got %+v", want, table[0].Service)
				}
				if want := vs.RealServers[0].Destination; table[0].Destinations[0].Destination != want {
					t.Errorf("real server: want %+v, got %+v", want, table[0].Destinations[0].Destination)
				}
			})
		})
	}

	t.Run("protocol", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			p := r.start(conf(service(vip, server(rs2, 3))))
			vs := service(vip, server(rs2, 3))
			vs.Protocol = ipvs.UDP
			if err := p.switchTo(conf(vs)); err != nil {
				t.Fatal(err)
			}
			after(5 * time.Second)
			r.wantTable("UDP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
		})
	})
}
