package daemon

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/ipvs"
)

// A server that was down stays down over kill -9, and comes back by its first
// passed check (kubernetes#92019).
func TestKillKeepsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2)))
		p := r.start(c)
		r.net.set(rs2, errRefused)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		p.kill()

		// It recovers while nobody looks. Until a check says so it stays down.
		r.net.set(rs2, nil)
		r.net.slow(500 * time.Millisecond)
		r.table.ResetRequests()
		p = r.start(c)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		if n := r.table.Requests().Writes; n != 0 {
			t.Errorf("writes of a restart over a right table: want 0, got %d", n)
		}
		if s, _ := p.stateOf(vip, rs2); s != fleet.Down {
			t.Errorf("state before the first check: want down, got %s", s)
		}
		// One result decides after a restart, although rise is 2.
		after(600 * time.Millisecond)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2")
	})
}

// Without memory a weight 0 in the table is nothing that lbd wants: the desired
// weight is never read from the table (kubernetes#108319).
func TestWeightIsNotReadFromTable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := service(vip, server(rs2, 3)).Service
		if err := r.table.Do(
			ipvs.Op{Kind: ipvs.OpAddService, Service: s},
			ipvs.Op{Kind: ipvs.OpAddDestination, Service: s, Destination: server(rs2, 0).Destination},
		); err != nil {
			t.Fatal(err)
		}
		r.start(conf(service(vip, r.checked(rs2, 3))))
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
	})
}

// Whenever lbd dies, what it knew of a failed server and of its services must
// have been written before the table was.
func TestMemoryComesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var creates, quiesces int
		r.table.SetHooks(hooks(func(op ipvs.Op) {
			m := r.load()
			switch {
			case op.Kind == ipvs.OpAddService:
				creates++
				if _, ok := m.Owned[op.Service.ServiceKey]; !ok {
					t.Errorf("%v is created before it is owned", op.Service.ServiceKey)
				}
			case op.Kind == ipvs.OpUpdateDestination && op.Destination.Weight == 0:
				quiesces++
				k := ipvs.DestinationKey{Service: op.Service.ServiceKey, Address: op.Destination.Address}
				if !m.Health[k] {
					t.Errorf("%v gets weight 0 before it is remembered as down", k)
				}
			}
		}))
		r.start(conf(service(vip, r.checked(rs2, 3)), service(vip2, r.checked(rs2, 3))))
		r.net.set(rs2, errRefused)
		after(decided)
		if creates != 2 || quiesces != 2 {
			t.Errorf("want 2 services created and 2 servers quiesced, got %d and %d", creates, quiesces)
		}
	})
}

// A full disk must not keep the weight of a dead server, and no service may be
// created that lbd would not know again.
func TestMemoryFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2))))
		r.mu.Lock()
		r.saveErr = errRefused
		r.mu.Unlock()
		r.net.set(rs2, errRefused)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		if err := p.switchTo(conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2)), service(vip2, server(rs2, 1)))); err == nil {
			t.Error("pass with a memory that cannot be saved: want an error, got none")
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		// Nor by a later pass, which must follow the checks all the same.
		r.net.set(rs3, errRefused)
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=0")
		r.net.set(rs3, nil)
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		r.mu.Lock()
		r.saveErr = nil
		r.mu.Unlock()
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2", "TCP 192.0.2.2:80 wlc: 10.0.0.2:80=1")
	})
}

// A service that is created but not yet filled when lbd dies is completed, one
// that left the configuration meanwhile is removed.
func TestKillInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, next := range []struct {
		name string
		conf *config.Config
		want []string
	}{
		{"same", conf(service(vip, server(rs2, 3))), []string{"TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3"}},
		{"gone", conf(service(vip2, server(rs2, 3))), []string{"TCP 192.0.2.2:80 wlc: 10.0.0.2:80=3"}},
	} {
		t.Run(next.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				blocked := make(chan struct{})
				r.table.SetHooks(hooks(func(op ipvs.Op) {
					if op.Kind == ipvs.OpAddDestination {
						<-blocked
					}
				}))
				p := r.start(conf(service(vip, server(rs2, 3))))
				r.wantTable("TCP 192.0.2.1:80 wlc:")
				stored := r.load() // as it is when lbd dies here
				r.table.SetHooks(hooks(nil))
				close(blocked)
				p.kill()
				r.stored = stored
				r.table.Clear()
				if err := r.table.Do(ipvs.Op{Kind: ipvs.OpAddService, Service: service(vip).Service}); err != nil {
					t.Fatal(err)
				}

				r.start(next.conf)
				r.wantTable(next.want...)
			})
		})
	}
}

// Somebody's services are left alone by everything (kube-vip#745).
func TestForeign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		foreign := ipvs.Service{ServiceKey: key("192.0.2.9:80"), Scheduler: "rr"}
		if err := r.table.Do(ipvs.Op{Kind: ipvs.OpAddService, Service: foreign}); err != nil {
			t.Fatal(err)
		}
		p := r.start(conf(service(vip, server(rs2, 1))))
		if err := p.switchTo(conf()); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Minute)
		r.wantTable("TCP 192.0.2.9:80 rr:")
		st, err := p.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(st.Foreign) != 1 || st.Foreign[0] != "TCP 192.0.2.9:80" {
			t.Errorf("foreign: want [TCP 192.0.2.9:80], got %v", st.Foreign)
		}
		c := conf()
		c.Exclusive = true
		if err := p.switchTo(c); err != nil {
			t.Fatal(err)
		}
		r.wantTable()
		if want := `removed: lbd is exclusive" service="TCP 192.0.2.9:80"`; !strings.Contains(r.log.String(), want) {
			t.Errorf("log: want %s, got\n%s", want, r.log)
		}
		if got := strings.Count(r.log.String(), "lbd is exclusive"); got != 1 {
			t.Errorf("log: want lbd's own service not to be called foreign, got\n%s", r.log)
		}
	})
}

// A server that came back is at the head of the list and wins ties. So it must be
// after the table was lost, while lbd runs or not, and for no longer than the
// service is wanted.
func TestLostTableKeepsOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		removed := r.checked(rs3, 1)
		removed.OnFailure = config.OnFailureRemove
		c := conf(service(vip, server(rs2, 1), removed, server(rs4, 1)))
		p := r.start(c)
		after(decided)
		if m := r.load(); len(m.Order) != 0 {
			t.Errorf("memory of the order of the file: want none, got %v", m.Order)
		}
		r.net.set(rs3, errRefused)
		after(decided)
		r.net.set(rs3, nil)
		after(decided)
		const moved = "TCP 192.0.2.1:80 wlc: 10.0.0.3:80=1 10.0.0.2:80=1 10.0.0.4:80=1"
		r.wantTable(moved)

		r.table.Clear()
		after(c.ReconcileInterval)
		r.wantTable(moved)

		p.kill()
		r.table.Clear()
		p = r.start(c)
		r.wantTable(moved)

		for _, next := range []*config.Config{conf(), c} {
			if err := p.switchTo(next); err != nil {
				t.Fatal(err)
			}
			after(time.Minute)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=1 10.0.0.3:80=1 10.0.0.4:80=1")
		if m := r.load(); len(m.Order) != 0 {
			t.Errorf("memory of the order of the file: want none, got %v", m.Order)
		}
	})
}

// A service that was lbd's is nobody else's: statistics from before it was deleted
// say nothing. What somebody adds after that is foreign.
func TestForeignOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 1)), service(vip2)))
		after(time.Minute)
		if err := p.switchTo(conf(service(vip, server(rs2, 1)))); err != nil {
			t.Fatal(err)
		}
		if st := p.mustStatus(); len(st.Foreign) > 0 {
			t.Errorf("right after it left: want no foreign service, got %v", st.Foreign)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=1")
		after(time.Minute)
		if err := r.table.Do(ipvs.Op{Kind: ipvs.OpAddService, Service: service(vip2).Service}); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if st := p.mustStatus(); len(st.Foreign) != 1 || st.Foreign[0] != "TCP "+vip2 {
			t.Errorf("added by somebody: want [TCP %s], got %v", vip2, st.Foreign)
		}
	})
}
