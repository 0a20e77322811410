package daemon

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// A server that leaves is drained, not cut off (keepalived#1228).
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3), server(rs3, 2))))
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 2, Inactive: 7})
		if err := p.switchTo(conf(service(vip, server(rs2, 3)))); err != nil {
			t.Fatal(err)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=0")
		if s, _ := p.stateOf(vip, rs3); s != fleet.Draining {
			t.Errorf("state: want draining, got %s", s)
		}
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=0")
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Inactive: 7})
		after(3 * time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
	})
}

func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3), server(rs3, 2))))
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 2})
		if err := p.switchTo(conf(service(vip, server(rs2, 3)))); err != nil {
			t.Fatal(err)
		}
		after(5*time.Minute - 2*time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=0")
		after(4 * time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
	})
}

// Counts from before the weight was 0 do not end a drain: a connection may have
// come in between.
func TestDrainWaitsForNewCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3), server(rs3, 2))))
		after(time.Second) // the mirror has seen no connection
		r.table.SetHooks(hooks(func(op ipvs.Op) {
			if op.Kind == ipvs.OpUpdateDestination {
				r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 1})
			}
		}))
		if err := p.switchTo(conf(service(vip, server(rs2, 3)))); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=0")
	})
}

// Counts are no snapshot and can miss a service: that a server is not in them
// does not end its drain.
func TestDrainOutlivesMissingCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3), server(rs3, 2))))
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 2})
		if err := p.switchTo(conf(service(vip, server(rs2, 3)))); err != nil {
			t.Fatal(err)
		}
		r.table.SetHooks(ipvstest.Hooks{AlterTable: func([]ipvs.TableEntry) []ipvs.TableEntry { return nil }})
		after(3 * time.Second) // the mirror alone reads
		r.table.SetHooks(ipvstest.Hooks{})
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=0")
	})
}

// A server that comes back in the middle of its drain stops draining and is as
// healthy as it was.
func TestDrainComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		both := conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2), r.checked(rs4, 1)))
		p := r.start(both)
		r.net.set(rs4, errRefused)
		after(decided)
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 2})
		r.table.SetConns(dkey(vip, rs4), ipvs.Conns{Active: 2})
		if err := p.switchTo(conf(service(vip, r.checked(rs2, 3)))); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=0 10.0.0.4:80=0")
		r.net.slow(900 * time.Millisecond)
		if err := p.switchTo(both); err != nil {
			t.Fatal(err)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2 10.0.0.4:80=0")
		if s, _ := p.stateOf(vip, rs4); s != fleet.Down {
			t.Errorf("state of the failed one before its first result: want down, got %s", s)
		}
		after(20 * time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2 10.0.0.4:80=0")
	})
}

// The service stays, refusing, until its last server has drained.
func TestDrainService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf(service(vip, server(rs2, 3), server(rs3, 2)), service(vip2, server(rs2, 1)))
		c.VIPInterface = "lo"
		p := r.start(c)
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 2})
		c2 := conf(service(vip2, server(rs2, 1)))
		c2.VIPInterface = "lo"
		if err := p.switchTo(c2); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.3:80=0", "TCP 192.0.2.2:80 wlc: 10.0.0.2:80=1")
		if _, vips := r.host.state(); len(vips) != 2 {
			t.Errorf("addresses while a service drains: want 2, got %v", vips)
		}
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{})
		after(3 * time.Second)
		r.wantTable("TCP 192.0.2.2:80 wlc: 10.0.0.2:80=1")
		if _, vips := r.host.state(); len(vips) != 1 {
			t.Errorf("addresses after the service went: want 1, got %v", vips)
		}
	})
}

// A drain goes on over kill -9, and ends when it would have ended.
func TestDrainOverRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3)), service(vip2, server(rs3, 2))))
		r.table.SetConns(dkey(vip2, rs3), ipvs.Conns{Active: 2})
		next := conf(service(vip, server(rs2, 3)))
		if err := p.switchTo(next); err != nil {
			t.Fatal(err)
		}
		p.kill()
		after(2 * time.Minute)
		r.start(next)
		after(2 * time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3", "TCP 192.0.2.2:80 wlc: 10.0.0.3:80=0")
		after(time.Minute + 2*time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
	})
}

// A server that comes back while lbd is not running stops draining.
func TestDrainComesBackWhileDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		both := conf(service(vip, server(rs2, 3), server(rs3, 2)))
		p := r.start(both)
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 2})
		if err := p.switchTo(conf(service(vip, server(rs2, 3)))); err != nil {
			t.Fatal(err)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=0")
		p.kill()
		r.start(both)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2")
		after(20 * time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2")
	})
}

// What left the file while lbd was not running drains as well.
func TestDrainAfterEditWhileDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3), server(rs3, 2)), service(vip2, server(rs3, 2))))
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 2})
		r.table.SetConns(dkey(vip2, rs3), ipvs.Conns{Active: 2})
		p.kill()
		r.start(conf(service(vip, server(rs2, 3))))
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=0", "TCP 192.0.2.2:80 wlc: 10.0.0.3:80=0")
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{})
		r.table.SetConns(dkey(vip2, rs3), ipvs.Conns{})
		after(3 * time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
	})
}

// A service of somebody else's that a reload takes over drains what the file
// lacks of it.
func TestDrainOfTakeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3))))
		theirs := service(vip2).Service
		if err := r.table.Do(
			ipvs.Op{Kind: ipvs.OpAddService, Service: theirs},
			ipvs.Op{Kind: ipvs.OpAddDestination, Service: theirs, Destination: server(rs3, 2).Destination},
			ipvs.Op{Kind: ipvs.OpAddDestination, Service: theirs, Destination: server(rs2, 2).Destination},
		); err != nil {
			t.Fatal(err)
		}
		r.table.SetConns(dkey(vip2, rs3), ipvs.Conns{Active: 2})
		both := conf(service(vip, server(rs2, 3)), service(vip2, server(rs2, 1)))
		both.VirtualServices[1].DrainTimeout = 2 * time.Minute
		if err := p.switchTo(both); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3", "TCP 192.0.2.2:80 wlc: 10.0.0.2:80=1 10.0.0.3:80=0")
		after(time.Minute + 2*time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3", "TCP 192.0.2.2:80 wlc: 10.0.0.2:80=1")
	})
}

// A service of somebody else that came into the configuration and left it again
// while the disk was full never was lbd's, and its servers are not drained.
func TestDrainOfUnclaimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		without := conf(service(vip, server(rs2, 3)))
		p := r.start(without)
		theirs := service(vip2).Service
		if err := r.table.Do(
			ipvs.Op{Kind: ipvs.OpAddService, Service: theirs},
			ipvs.Op{Kind: ipvs.OpAddDestination, Service: theirs, Destination: server(rs3, 2).Destination},
			ipvs.Op{Kind: ipvs.OpAddDestination, Service: theirs, Destination: server(rs2, 2).Destination},
		); err != nil {
			t.Fatal(err)
		}
		after(time.Minute) // the counts have them
		setSaveErr := func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.saveErr = err
		}
		setSaveErr(errRefused)
		if err := p.switchTo(conf(service(vip, server(rs2, 3)), service(vip2, server(rs2, 1)))); !errors.Is(err, errRefused) {
			t.Fatalf("reload with a full disk: want %v, got %v", errRefused, err)
		}
		setSaveErr(nil)
		if err := p.switchTo(without); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3", "TCP 192.0.2.2:80 wlc: 10.0.0.2:80=2 10.0.0.3:80=2")
	})
}

// A server that lbd cannot edit, because only others make such, is deleted and
// keeps no pass from succeeding.
func TestDrainOfUneditable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(conf(service(vip, server(rs2, 3), server(rs3, 2)))).kill()
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 2})
		r.table.SetHooks(ipvstest.Hooks{AlterTable: func(table []ipvs.TableEntry) []ipvs.TableEntry {
			for i := range table[0].Destinations {
				if d := &table[0].Destinations[i]; d.Address.String() == rs3 {
					d.Forward = ipvs.Bypass
				}
			}
			return table
		}})
		p := r.start(conf(service(vip, server(rs2, 3))))
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
		if st := p.mustStatus(); st.Sync.LastError != "" {
			t.Errorf("status: want no error, got %q", st.Sync.LastError)
		}
		if want := "cannot be drained: deleted at once"; !strings.Contains(r.log.String(), want) {
			t.Errorf("log: want %q, got\n%s", want, r.log)
		}
	})
}

// UDP flows are never active: a drain waits for the inactive ones
// (kubernetes#71514), but not longer than its timeout.
func TestDrainUDP(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		udp := func(servers ...config.RealServer) config.VirtualService {
			vs := service(vip, servers...)
			vs.Protocol = ipvs.UDP
			return vs
		}
		p := r.start(conf(udp(server(rs2, 3), server(rs3, 2))))
		k := dkey(vip, rs3)
		k.Service.Protocol = ipvs.UDP
		r.table.SetConns(k, ipvs.Conns{Inactive: 1})
		if err := p.switchTo(conf(udp(server(rs2, 3)))); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		r.wantTable("UDP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=0")
		after(4*time.Minute + 2*time.Second)
		r.wantTable("UDP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
	})
}

// A drain that needs no write, of a server that had failed before it left, ends
// when nothing is connected although another service is refused for good.
func TestDrainBesideRefusedService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3), r.checked(rs3, 2))))
		r.net.set(rs3, errRefused)
		after(decided)
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 2})
		refused := service(vip2, server(rs2, 1))
		refused.Scheduler = "nosuch"
		if err := p.switchTo(conf(service(vip, server(rs2, 3)), refused)); !errors.Is(err, ipvs.ErrSchedulerNotFound) {
			t.Fatalf("want %v, got %v", ipvs.ErrSchedulerNotFound, err)
		}
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=0")
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{})
		after(3 * time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
	})
}
