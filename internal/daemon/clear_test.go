package daemon

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/internal/reconcile"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// cleaner is what lbd --clear makes of what a dead daemon left.
func (r *rig) cleaner() *owner {
	o := &owner{log: slog.New(slog.NewTextHandler(r.log, nil)), engine: engine{r.table}, host: r.host, store: r}
	o.mem, _ = recall(r.load(), time.Now())
	o.reconciler = &reconcile.Reconciler{}
	return o
}

func TestClear(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		foreign := ipvs.Service{ServiceKey: key("192.0.2.9:80"), Scheduler: "rr"}
		if err := r.table.Do(ipvs.Op{Kind: ipvs.OpAddService, Service: foreign}); err != nil {
			t.Fatal(err)
		}
		theirs := VIP{"lo", netip.MustParseAddr("192.0.2.9")}
		r.host.addresses[theirs] = false
		c := conf(service(vip, r.checked(rs2, 1)), service(vip2, server(rs2, 1)))
		c.VIPInterface = "lo"
		c.Sysctls = map[string]int{"expire_nodest_conn": 1}
		r.start(c).kill()

		if err := r.cleaner().clear(context.Background()); err != nil {
			t.Fatal(err)
		}
		r.wantTable("TCP 192.0.2.9:80 rr:")
		sysctls, vips := r.host.state()
		if sysctls["expire_nodest_conn"] != 0 {
			t.Errorf("sysctl: want the old 0, got %d", sysctls["expire_nodest_conn"])
		}
		if diff := cmp.Diff(map[VIP]bool{theirs: false}, vips, cmp.Comparer(cmpVIP)); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
		if m := r.load(); len(m.Owned)+len(m.Health)+len(m.Drains)+len(m.Sysctls)+len(m.VIPs) != 0 {
			t.Errorf("memory: want nothing, got %+v", m)
		}
		// A second time there is nothing to do.
		r.table.ResetRequests()
		if err := r.cleaner().clear(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := r.table.Requests().Writes; n != 0 {
			t.Errorf("writes of a second clear: want 0, got %d", n)
		}
	})
}

// TestClearWhole clears an engine that can be removed as a whole, of which nothing
// can be deleted one by one.
func TestClearWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf(service(vip, r.checked(rs2, 1)))
		c.Sysctls = map[string]int{"expire_nodest_conn": 1}
		r.start(c).kill()
		failed := syscall.ENOSPC
		r.table.SetFaults(ipvstest.Faults{Rate: 1, Errs: []error{failed}, Rand: rand.New(rand.NewPCG(1, 1))})
		o := r.cleaner()
		var cannot error
		o.clearEngine = func(context.Context) error { return cannot }

		cannot = errors.New("no permission")
		if err := o.clear(context.Background()); !errors.Is(err, failed) || !errors.Is(err, cannot) {
			t.Errorf("want both errors, got %v", err)
		}
		if m := r.load(); len(m.Owned) == 0 {
			t.Error("what is still there was forgotten")
		}
		cannot = nil
		if err := o.clear(context.Background()); err != nil {
			t.Error(err)
		}
		if m := r.load(); len(m.Owned)+len(m.Health)+len(m.Drains)+len(m.Sysctls) != 0 {
			t.Errorf("memory: want nothing, got %+v", m)
		}
	})
}

// After a clear nothing is remembered of the servers: an old failure is no reason
// for a slow start, and an old quorum none for the hysteresis.
func TestClearForgets(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string]func(context.Context) error{"one by one": nil, "whole": func(context.Context) error { return nil }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				vs := service(vip, r.checked(rs2, 1), r.checked(rs3, 1))
				vs.FailOpenBelow = 10
				r.net.set(rs2, errRefused)
				p := r.start(conf(vs))
				after(decided)
				p.kill()
				if m := r.load(); len(m.Policies) == 0 || len(m.Returns) == 0 || len(m.Health) == 0 {
					t.Fatalf("memory: want something of each kind, got %+v", m)
				}
				o := r.cleaner()
				o.clearEngine = whole
				if err := o.clear(context.Background()); err != nil {
					t.Fatal(err)
				}
				if m := r.load(); len(m.Policies)+len(m.Returns)+len(m.Health) != 0 {
					t.Errorf("memory: want nothing, got %+v", m)
				}
			})
		})
	}
}

// What was in a namespace went away with it: it must not keep lbd from starting
// in another one for ever.
func TestClearWithoutNamespace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	with := func(f func(*memory.Store) error) {
		t.Helper()
		s, err := memory.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f(s), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	with(func(s *memory.Store) error {
		return s.Save(memory.Memory{
			NetNS:   "lbd-test-gone",
			Owned:   map[ipvs.ServiceKey]struct{}{key(vip): {}},
			Sysctls: map[string]int{"conntrack": 0},
		})
	})
	if err := Clear(t.Context(), dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	with(func(s *memory.Store) error {
		m, err := s.Load()
		if l, _ := recall(m, time.Now()); !l.empty() || l.netns != "" {
			t.Errorf("memory: want nothing, got %+v", m)
		}
		return err
	})
}

// With the module unloaded there is no table to clear, and the rest is cleared.
func TestClearWithoutIPVS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf(service(vip, server(rs2, 1)))
		c.VIPInterface = "lo"
		c.Timeouts = ipvs.Timeouts{TCP: time.Hour}
		r.start(c).kill()
		r.table.SetAvailable(false)
		if err := r.cleaner().clear(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, vips := r.host.state(); len(vips) != 0 {
			t.Errorf("addresses: want none, got %v", vips)
		}
		if m := r.load(); len(m.Owned)+len(m.Health)+len(m.Drains)+len(m.Sysctls)+len(m.VIPs) != 0 || m.Timeouts != (ipvs.Timeouts{}) {
			t.Errorf("memory: want nothing, got %+v", m)
		}
	})
}

// on_exit: clear is for a stop. A daemon that failed is started again: until
// then its table must go on working.
func TestExit(t *testing.T) {
	t.Parallel()
	const there = "TCP 192.0.2.1:80 wlc: 10.0.0.2:80=1"
	for _, tt := range []struct {
		name   string
		onExit config.OnExit
		failed error
		want   []string
	}{
		{"keep", config.OnExitKeep, nil, []string{there}},
		{"clear", config.OnExitClear, nil, nil},
		{"clear after a failure", config.OnExitClear, errors.New("mirror: ended by itself"), []string{there}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				c := conf(service(vip, server(rs2, 1)))
				c.OnExit = tt.onExit
				p := r.start(c)
				p.kill()
				if err := p.exit(t.Context(), tt.failed); !errors.Is(err, tt.failed) {
					t.Errorf("exit: want %v, got %v", tt.failed, err)
				}
				r.wantTable(tt.want...)
			})
		})
	}
}
