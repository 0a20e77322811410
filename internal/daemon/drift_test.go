package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// Somebody else's ipvsadm is repaired within one interval, at a reload without a
// change, and on request, and is reported (keepalived#1877).
func TestDrift(t *testing.T) {
	t.Parallel()
	s := service(vip).Service
	change := func(d ipvs.Destination, w uint32) ipvs.Destination { d.Weight = w; return d }
	for _, stray := range []struct {
		name string
		do   func(*ipvstest.Fake) error
	}{
		{"clear", func(f *ipvstest.Fake) error { f.Clear(); return nil }},
		{"delete service", func(f *ipvstest.Fake) error {
			return f.Do(ipvs.Op{Kind: ipvs.OpDeleteService, Service: s})
		}},
		{"delete real server", func(f *ipvstest.Fake) error {
			return f.Do(ipvs.Op{Kind: ipvs.OpDeleteDestination, Service: s, Destination: server(rs2, 3).Destination})
		}},
		{"edit weight", func(f *ipvstest.Fake) error {
			return f.Do(ipvs.Op{Kind: ipvs.OpUpdateDestination, Service: s, Destination: change(server(rs2, 3).Destination, 0)})
		}},
	} {
		for _, trigger := range []string{"timer", "reload", "request"} {
			t.Run(stray.name+" "+trigger, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					c := conf(service(vip, server(rs2, 3)))
					p := r.start(c)
					after(time.Second)
					if err := stray.do(r.table); err != nil {
						t.Fatal(err)
					}
					switch trigger {
					case "timer":
						after(c.ReconcileInterval)
					case "reload":
						if err := p.switchTo(c); err != nil {
							t.Fatal(err)
						}
					case "request":
						res, err := p.Reconcile(t.Context())
						if err != nil || len(res.Errors) > 0 || len(res.Steps) == 0 {
							t.Fatalf("reconcile: want steps, got %+v, %v", res, err)
						}
					}
					r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
					st, err := p.Status(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if st.Sync.Drift == 0 || !strings.Contains(st.Sync.LastDrift, "192.0.2.1:80") {
						t.Errorf("drift in the status: want it told, got %+v", st.Sync)
					}
				})
			})
		}
	}
}

// An ipvsadm -C with thousands of services is counted, but not told line by line.
func TestDriftLogIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf()
		for i := range 30 {
			c.VirtualServices = append(c.VirtualServices, service(fmt.Sprintf("192.0.2.1:%d", 80+i)))
		}
		p := r.start(c)
		r.table.Clear()
		after(c.ReconcileInterval)
		lines := strings.Count(r.log.String(), "somebody else changed the table")
		if want := "changes=10"; lines != maxDriftLines || !strings.Contains(r.log.String(), want) {
			t.Errorf("log: want %d lines and %s, got %d:\n%s", maxDriftLines, want, lines, r.log)
		}
		if got := p.mustStatus().Sync.Drift; got != 30 {
			t.Errorf("drift in the status: want 30, got %d", got)
		}
	})
}

// The service vanishes in the middle of a reload that adds servers to it: it is
// made again with all of them (keepalived#1904).
func TestServiceVanishes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3))))
		once := true
		r.table.SetHooks(hooks(func(op ipvs.Op) {
			if once && op.Kind == ipvs.OpAddDestination {
				once = false
				if err := r.table.Do(ipvs.Op{Kind: ipvs.OpDeleteService, Service: op.Service}); err != nil {
					t.Error(err)
				}
			}
		}))
		if err := p.switchTo(conf(service(vip, server(rs2, 3), server(rs3, 2), server(rs4, 1)))); err != nil {
			t.Fatal(err)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2 10.0.0.4:80=1")
		if once {
			t.Error("the service did not vanish")
		}
	})
}

// A pass over a right table writes nothing.
func TestQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2)))
		c.VIPInterface = "lo"
		c.Sysctls = map[string]int{"expire_nodest_conn": 1}
		p := r.start(c)
		after(decided)
		r.table.ResetRequests()
		passes := p.mustStatus().Sync.Passes
		r.mu.Lock()
		saves, writes := r.saves, r.host.writes
		r.mu.Unlock()
		after(10 * time.Minute)
		if n := p.mustStatus().Sync.Passes - passes; n != 20 {
			t.Errorf("passes in 10 quiet minutes: want 20, got %d", n)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := r.table.Requests().Writes; n != 0 {
			t.Errorf("writes to the table in 10 quiet minutes: want 0, got %d", n)
		}
		if r.saves != saves || r.host.writes != writes {
			t.Errorf("saves and host writes in 10 quiet minutes: want 0, got %d and %d", r.saves-saves, r.host.writes-writes)
		}
	})
}

// The table converges although a tenth of everything fails.
func TestFaultsConverge(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.table.SetFaults(ipvstest.Faults{
				Rate: 0.1, LostRate: 0.1, ReadRate: 0.1,
				Errs: []error{syscall.ENOMEM, syscall.EINTR, syscall.EBUSY},
				Rand: rand.New(rand.NewPCG(seed, 1)),
			})
			c := conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2)), service(vip2, r.checked(rs2, 1), r.checked(rs4, 4)))
			p := r.begin(c)
			after(time.Minute)
			r.net.set(rs2, errRefused)
			after(time.Minute)
			if err := p.owner.do(t.Context(), p.stopped, func(ctx context.Context) {
				if err := p.owner.switchTo(&loaded{Config: conf(service(vip, r.checked(rs2, 3))), at: time.Now()}); err != nil {
					t.Error(err)
				}
				p.owner.pass(ctx)
			}); err != nil {
				t.Fatal(err)
			}
			after(2 * time.Minute)
			r.table.SetFaults(ipvstest.Faults{})
			r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0")
		})
	}
}

// One service that the kernel refuses does not keep the others from being right,
// is in the status until it is taken, and then is not.
func TestRefusedService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		bad := service(vip2, server(rs2, 1))
		bad.Scheduler = "nosuch"
		p := r.begin(conf(bad, service(vip, r.checked(rs2, 3), r.checked(rs3, 2))))
		synctest.Wait()
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2")
		r.net.set(rs2, errRefused)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		if !strings.Contains(r.log.String(), `msg="real server down"`) {
			t.Errorf("the failure is not in the log:\n%s", r.log)
		}
		st, err := p.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(st.Sync.LastError, "192.0.2.2:80") || !st.Sync.LastSuccess.IsZero() {
			t.Errorf("status: want the refused service as the error and no success, got %+v", st.Sync)
		}
		// Without it all is well at once: what never was in the table has nothing
		// to drain.
		good := conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2)))
		if err := p.switchTo(good); err != nil {
			t.Errorf("reload without the refused service: %v", err)
		}
		if err := p.switchTo(conf(bad, good.VirtualServices[0])); err == nil {
			t.Error("reload with the refused service again: want an error, got none")
		}
		r.table.SetSchedulers("wlc", "nosuch")
		after(time.Minute)
		if st, err = p.Status(t.Context()); err != nil || st.Sync.LastError != "" || st.Sync.LastSuccess.IsZero() {
			t.Errorf("status after the scheduler came: want success, got %+v, %v", st.Sync, err)
		}
	})
}

// The module is unloaded under lbd and comes back.
func TestFamilyGoesAndComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, r.checked(rs2, 3))))
		after(time.Second)
		r.table.SetAvailable(false)
		after(time.Minute)
		st, err := p.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(st.Sync.LastError, "IPVS not available") || !strings.Contains(st.Mirror.LastError, "IPVS not available") {
			t.Errorf("status: want that IPVS is not available, got %q and %q", st.Sync.LastError, st.Mirror.LastError)
		}
		r.table.SetAvailable(true)
		after(retryMax)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
		if st, err = p.Status(t.Context()); err != nil || st.Sync.LastError != "" || st.Mirror.LastError != "" {
			t.Errorf("status after it came back: want no error, got %q and %q, %v", st.Sync.LastError, st.Mirror.LastError, err)
		}
	})
}

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{
		1: 250 * time.Millisecond, 2: 500 * time.Millisecond, 4: 2 * time.Second,
		7: 16 * time.Second, 8: retryMax, 9: retryMax, 1000: retryMax,
	} {
		if got := retryDelay(failures, 0); got != want {
			t.Errorf("after %d failures: want %v, got %v", failures, want, got)
		}
		if got := retryDelay(failures, 0.999); got >= want || got < want*3/4 {
			t.Errorf("after %d failures with jitter: want from %v to %v, got %v", failures, want*3/4, want, got)
		}
	}
}
