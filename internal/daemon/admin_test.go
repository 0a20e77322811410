package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/memory/state"
	"github.com/lbd-project/lbd/ipvs"
)

// fakeStateFile is a state file that outlives daemons.
type fakeStateFile struct {
	mu      sync.Mutex
	held    state.Overrides
	savedAt time.Time
	saves   int
	err     error
	// broken, if set, is why it cannot be opened.
	broken error
	// beforeSave, if set, is called before each.
	beforeSave func()
}

// Save implements OverrideStore.
func (f *fakeStateFile) Save(o state.Overrides) error {
	if f.beforeSave != nil {
		f.beforeSave()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	f.held, f.savedAt, f.saves = o, time.Now(), f.saves+1
	return nil
}

func (f *fakeStateFile) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeStateFile) saved() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.saves
}

// age returns how old what was saved is.
func (f *fakeStateFile) age() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.savedAt)
}

// open returns what was saved, aged as a state.File does it.
func (f *fakeStateFile) open() kept {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return kept{err: f.broken}
	}
	held := maps.Clone(f.held)
	for k, o := range held {
		if o.Weight != nil {
			w := *o.Weight
			w.Elapsed = min(w.Elapsed+time.Since(f.savedAt), w.Over)
			o.Weight = &w
			held[k] = o
		}
	}
	return kept{store: f, overrides: held}
}

// say makes a request as alice does, and returns what came of it, a line for each
// real server.
func (p *process) say(target string, r api.AdminRequest) (string, api.AdminResult) {
	p.r.t.Helper()
	t, err := api.ParseAdminTarget(target)
	if err != nil {
		p.r.t.Fatal(err)
	}
	result, err := p.SetAdmin(context.Background(), t, r, api.Peer{UID: 4711})
	if err != nil {
		p.r.t.Fatal(err)
	}
	synctest.Wait()
	var lines []string
	for _, c := range result.RealServers {
		was := "unchanged"
		if c.Changed {
			was = "changed"
		}
		lines = append(lines, fmt.Sprintf("%s/%s %s: %s: %s %d", c.Service, c.RealServer, was, c.Change, c.State, c.Weight))
	}
	return strings.Join(lines, "\n"), result
}

// wantSaid makes a request and compares what came of it.
func (p *process) wantSaid(target string, r api.AdminRequest, want ...string) {
	p.r.t.Helper()
	got, result := p.say(target, r)
	if diff := cmp.Diff(strings.Join(want, "\n"), got); diff != "" || len(result.Errors) > 0 {
		p.r.t.Fatalf("%s %+v: errors %q, (-want +got):\n%s", target, r, result.Errors, diff)
	}
}

func weight(n uint32) *uint32 { return &n }

var (
	drain   = api.AdminRequest{Mode: "drain"}
	disable = api.AdminRequest{Mode: "disable"}
	resume  = api.AdminRequest{Mode: "none"}
)

// What an operator says is in the state file before it is in the table, in force
// when the answer comes, and a second time changes nothing.
func TestAdminModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2))))
		after(decided)
		inTable := ""
		r.admin.beforeSave = func() { inTable = r.tableText() }
		both := "TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2"
		r.wantTable(both)

		p.wantSaid("web-"+vip+"/"+rs2, drain, "web-192.0.2.1:80/10.0.0.2:80 changed: drained: drained 0")
		if inTable != both+"\n" {
			t.Errorf("the table was changed before the state file was written: %s", inTable)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		since := p.owner.view.Load().admin[dkey(vip, rs2)].At
		after(time.Second)
		saves, ops := r.admin.saved(), p.status().Sync.Ops
		p.wantSaid(rs2, drain, "web-192.0.2.1:80/10.0.0.2:80 unchanged: drained: drained 0")
		if r.admin.saved() != saves || p.status().Sync.Ops != ops {
			t.Errorf("a second drain: want no write, got %d of the file, %d of the table", r.admin.saved()-saves, p.status().Sync.Ops-ops)
		}

		if got := p.owner.view.Load().admin[dkey(vip, rs2)].At; !got.Equal(since) {
			t.Errorf("a second drain: want it to be of %v still, got %v", since, got)
		}
		p.wantSaid(rs2, disable, "web-192.0.2.1:80/10.0.0.2:80 changed: disabled: disabled 0")
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.3:80=2")
		checks := r.net.checked(rs2)
		after(decided)
		if r.net.checked(rs2) == checks {
			t.Error("a disabled server is not checked")
		}
		r.net.set(rs2, errRefused)
		after(decided)
		p.wantSaid(rs2, resume, "web-192.0.2.1:80/10.0.0.2:80 changed: resumed: down 0")
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		r.net.set(rs2, nil)
		after(decided)
		r.wantTable(both)
		if len(r.admin.open().overrides) != 0 {
			t.Errorf("want nothing left in the state file, got %v", r.admin.open().overrides)
		}
	})
}

// Who drains is told whom it concerns: which service, and all of its connections, as
// those of UDP are never active.
func TestAdminTellsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3))))
		r.table.SetConns(dkey(vip, rs2), ipvs.Conns{Active: 2, Inactive: 7})
		after(2 * time.Second)
		_, result := p.say(rs2, drain)
		got := result.RealServers[0]
		if got.Key != "TCP 192.0.2.1:80" || got.ActiveConnections != 2 || got.InactiveConnections != 7 {
			t.Errorf("want 2 active and 7 inactive connections of TCP 192.0.2.1:80, got %+v", got)
		}
	})
}

// What the table has taken is done, whatever else it refuses; a drain of what it has
// not taken is none.
func TestAdminBesideRefusedService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		refused := service(vip2, server(rs3, 1))
		refused.Scheduler = "nosuch"
		p := r.start(conf(service(vip, server(rs2, 3)), refused))
		const why = "scheduler not found"
		_, result := p.say(rs2, drain)
		if len(result.Errors) > 0 || len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], why) {
			t.Errorf("of another service: want a warning with %q, got warnings %q, errors %q", why, result.Warnings, result.Errors)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0")
		if _, result = p.say(rs3, drain); len(result.Errors) != 1 || !strings.Contains(result.Errors[0], why) {
			t.Errorf("of the refused service: want an error with %q, got %q", why, result.Errors)
		}
	})
}

// A plan knows what operators said: of the file that runs it has no step.
func TestAdminPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.startFile(writeFile(t, goodFile))
		p.say(rs2, drain)
		plan, err := p.Diff(t.Context(), api.File{Name: "lbd.yaml", Content: goodFile})
		if err != nil || len(plan.Steps)+len(plan.Errors) != 0 {
			t.Errorf("want no step, got %+v, %v", plan, err)
		}
	})
}

// A real server is named in one service, by address and port, or by its address.
func TestAdminTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const rs2Other = "10.0.0.2:8080"
		p := r.start(conf(service(vip, server(rs2, 3), server(rs2Other, 2)), service(vip2, server(rs2, 1), server(rs3, 1))))
		p.wantSaid("TCP "+vip2+"/"+rs2, drain, "web-192.0.2.2:80/10.0.0.2:80 changed: drained: drained 0")
		p.wantSaid(rs2, drain,
			"web-192.0.2.1:80/10.0.0.2:80 changed: drained: drained 0",
			"web-192.0.2.2:80/10.0.0.2:80 unchanged: drained: drained 0")
		p.wantSaid("10.0.0.2", resume,
			"web-192.0.2.1:80/10.0.0.2:80 changed: resumed: unchecked 3",
			"web-192.0.2.1:80/10.0.0.2:8080 unchanged: resumed: unchecked 2",
			"web-192.0.2.2:80/10.0.0.2:80 changed: resumed: unchecked 1")
		for target, want := range map[string]string{
			"nope/" + rs2:            `virtual service "nope": not found in the configuration`,
			"10.0.0.9":               "real server 10.0.0.9: not found in the configuration",
			"web-" + vip + "/" + rs3: "real server web-192.0.2.1:80/10.0.0.3:80: not found in the configuration",
		} {
			at, err := api.ParseAdminTarget(target)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.SetAdmin(t.Context(), at, drain, api.Peer{}); !errors.Is(err, api.ErrNotFound) || err.Error() != want {
				t.Errorf("%s: want %s, got %v", target, want, err)
			}
		}
	})
}

// A weight takes the place of the configured one until the configuration says
// another: then that counts. A drain lasts over that, and ends with the server.
func TestAdminWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3), server(rs3, 2))))
		p.wantSaid(rs2, api.AdminRequest{Weight: weight(9)}, "web-192.0.2.1:80/10.0.0.2:80 changed: weight 3 -> 9: unchecked 9")
		p.wantSaid(rs2, api.AdminRequest{Weight: weight(9)}, "web-192.0.2.1:80/10.0.0.2:80 unchanged: weight 9: unchecked 9")
		p.wantSaid(rs2, drain, "web-192.0.2.1:80/10.0.0.2:80 changed: drained: drained 0")
		p.wantSaid(rs2, resume, "web-192.0.2.1:80/10.0.0.2:80 changed: resumed, weight 9 stays: unchecked 9")
		p.wantSaid(rs2, api.AdminRequest{ResetWeight: true}, "web-192.0.2.1:80/10.0.0.2:80 changed: weight 9 -> 3, as configured: unchecked 3")
		p.wantSaid(rs2, api.AdminRequest{ResetWeight: true}, "web-192.0.2.1:80/10.0.0.2:80 unchanged: weight 3, as configured: unchecked 3")
		// 0 is a weight, and not a drain.
		p.wantSaid(rs2, api.AdminRequest{Weight: weight(0)}, "web-192.0.2.1:80/10.0.0.2:80 changed: weight 3 -> 0: unchecked 0")
		p.wantSaid(rs2, drain, "web-192.0.2.1:80/10.0.0.2:80 changed: drained: drained 0")
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")

		if err := p.switchTo(conf(service(vip, server(rs2, 5), server(rs3, 2)))); err != nil {
			t.Fatal(err)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		p.wantSaid(rs2, resume, "web-192.0.2.1:80/10.0.0.2:80 changed: resumed: unchecked 5")
		if !strings.Contains(r.log.String(), "weight 0 dropped\" reason=\"the configuration says 5 now, and said 3 when it was set") {
			t.Errorf("the log does not tell of the weight that was dropped:\n%s", r.log)
		}

		p.wantSaid(rs2, drain, "web-192.0.2.1:80/10.0.0.2:80 changed: drained: drained 0")
		for _, c := range [][]string{{rs3}, {rs2, rs3}} {
			s := service(vip)
			for _, rs := range c {
				s.RealServers = append(s.RealServers, server(rs, 5))
			}
			if err := p.switchTo(conf(s)); err != nil {
				t.Fatal(err)
			}
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=5 10.0.0.3:80=5")
	})
}

// The same, where the configuration changed while no lbd ran.
func TestAdminRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3), server(rs3, 2), server(rs4, 1))))
		p.say(rs2, drain)
		p.say(rs3, api.AdminRequest{Weight: weight(7)})
		p.say(rs4, disable)
		want := "TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=7"
		r.wantTable(want)
		p.kill()
		p = r.start(conf(service(vip, server(rs2, 3), server(rs3, 2), server(rs4, 1))))
		r.wantTable(want)
		if ops := p.status().Sync.Ops; ops != 0 {
			t.Errorf("a restart wrote %d times to the table", ops)
		}
		services, err := p.Services(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a := services[0].RealServers[0].Admin
		if a.Mode != "drain" || a.By != "uid 4711" || a.Since.IsZero() {
			t.Errorf("who and when: got %+v", a)
		}
		if n := p.status().Overrides.RealServers; n != 3 {
			t.Errorf("status: want 3 real servers with an admin state, got %d", n)
		}
		p.kill()
		r.start(conf(service(vip, server(rs2, 1), server(rs3, 4))))
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=4")
		if left := r.admin.open().overrides; len(left) != 1 || left[dkey(vip, rs2)].Mode != "drain" {
			t.Errorf("want the drain alone in the state file, got %+v", left)
		}
	})
}

// A ramp goes its way by itself, over a restart too, and ends where it should.
func TestAdminRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 0), server(rs3, 2))))
		ramp := api.AdminRequest{Weight: weight(100), OverSeconds: 100}
		p.wantSaid(rs2, ramp, "web-192.0.2.1:80/10.0.0.2:80 changed: weight 0 -> 100 over 1m40s: unchecked 0")
		after(30 * time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=30 10.0.0.3:80=2")
		p.wantSaid(rs2, ramp, "web-192.0.2.1:80/10.0.0.2:80 unchanged: weight 30 -> 100 over 1m40s: unchecked 30")
		p.kill()
		after(20 * time.Second)
		p = r.start(conf(service(vip, server(rs2, 0), server(rs3, 2))))
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=50 10.0.0.3:80=2")
		after(time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=51 10.0.0.3:80=2")
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=100 10.0.0.3:80=2")
		// Back to what is configured, where no override is left.
		p.wantSaid(rs2, api.AdminRequest{ResetWeight: true, OverSeconds: 10}, "web-192.0.2.1:80/10.0.0.2:80 changed: weight 100 -> 0 over 10s: unchecked 100")
		after(5 * time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=50 10.0.0.3:80=2")
		after(6 * time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		if n := p.status().Overrides.RealServers; n != 0 {
			t.Errorf("after a ramp to the configured weight: want no admin state, got %d", n)
		}
	})
}

// A full disk keeps nobody from draining a server, and is told of until it is
// written down.
func TestAdminNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, server(rs2, 3), server(rs3, 2))))
		r.admin.fail(errors.New("no space left on device"))
		_, result := p.say(rs2, drain)
		if len(result.Errors) != 1 || !strings.Contains(result.Errors[0], "not written down: no space left on device") {
			t.Errorf("want one error about the state file, got %q", result.Errors)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		if s := p.status(); s.Overrides.LastError != "no space left on device" || s.Sync.LastError != "" {
			t.Errorf("status: want an error of the file and none of the table, got %+v, %+v", s.Overrides, s.Sync)
		}
		r.admin.fail(nil)
		after(time.Minute)
		if s := p.status(); s.Overrides.LastError != "" || s.Sync.LastError != "" || len(r.admin.open().overrides) != 1 {
			t.Errorf("later: want it written down, got %+v, %+v", s.Overrides, s.Sync)
		}
	})
}

// A disk that hangs holds up one change by a second, and nobody after that; what is
// said meanwhile is written down once it answers.
func TestAdminDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2))))
		after(decided)
		answer := make(chan struct{})
		r.admin.beforeSave = func() { <-answer }
		begun := time.Now()
		if _, result := p.say(rs2, drain); len(result.Errors) != 1 || !strings.Contains(result.Errors[0], "the disk has not answered") {
			t.Errorf("want one error about the disk, got %q", result.Errors)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		if took := time.Since(begun); took != diskPatience {
			t.Errorf("drained after %v, want %v", took, diskPatience)
		}
		r.net.set(rs3, errRefused)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=0")
		begun = time.Now()
		p.say(rs2, api.AdminRequest{Mode: "none", Weight: weight(7)})
		if took := time.Since(begun); took != 0 {
			t.Errorf("resumed after %v, want at once", took)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=7 10.0.0.3:80=0")
		if err := p.status().Overrides.LastError; err == "" {
			t.Error("status: want an error")
		}
		close(answer)
		after(time.Minute)
		if got := r.admin.open().overrides[dkey(vip, rs2)]; got.Weight == nil || got.Weight.To != 7 || got.Mode != state.ModeNone {
			t.Errorf("written down: want weight 7, got %+v", got)
		}
		if err := p.status().Overrides.LastError; err != "" {
			t.Errorf("status: %s", err)
		}
	})
}

// What fails elsewhere, however long, holds up no weight that is on its way.
func TestRampWhileFailing(t *testing.T) {
	full := errors.New("no space left on device")
	for name, fail := range map[string]func(r *rig){
		"state file": func(r *rig) { r.admin.fail(full) },
		"memory": func(r *rig) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.saveErr = full
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				p := r.start(conf(service(vip, server(rs2, 0), server(rs3, 2))))
				fail(r)
				after(10 * time.Minute)
				p.say(rs2, api.AdminRequest{Weight: weight(600), OverSeconds: 600})
				for minute := range 9 {
					after(time.Minute)
					if want, got := 60*(minute+1), r.weightOf(rs2); got < want-2 || got > want+2 {
						t.Errorf("after %d minutes: want weight %d, got %d", minute+1, want, got)
					}
				}
			})
		})
	}
}

// A state file that cannot be used keeps lbd from nothing, and is told of to whoever
// wants something kept.
func TestAdminStoreUnusable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.admin.broken = errors.New("state_file: read-only file system")
		p := r.start(conf(service(vip, server(rs2, 3), server(rs3, 2))))
		if !strings.Contains(r.noticed(), "READY=1") || p.status().Sync.LastError != "" {
			t.Errorf("want it ready, got %q, %+v", r.noticed(), p.status().Sync)
		}
		if got := p.status().Overrides.LastError; got != r.admin.broken.Error() {
			t.Errorf("status: want %v, got %q", r.admin.broken, got)
		}
		_, result := p.say(rs2, drain)
		if want := "not kept over a restart: " + r.admin.broken.Error(); len(result.Errors) != 1 || result.Errors[0] != want {
			t.Errorf("answer: want %q, got %q", want, result.Errors)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
	})
}

// While lbd runs, the file does not grow old.
func TestAdminStaysFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf(service(vip, server(rs2, 3), server(rs3, 2)))
		c.StateMaxAge = time.Hour
		p := r.start(c)
		after(2 * time.Hour)
		if n := r.admin.saved(); n != 0 {
			t.Errorf("with nothing in force: want no write, got %d", n)
		}
		p.say(rs2, drain)
		after(2 * time.Hour)
		if age := r.admin.age(); age > 7*time.Minute {
			t.Errorf("the file is %v old, while lbd runs", age)
		}
	})
}

// Nor does the state file of an lbd that is restarted again and again.
func TestAdminStaysFreshOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf(service(vip, server(rs2, 3), server(rs3, 2)))
		c.StateMaxAge = time.Hour
		p := r.start(c)
		p.say(rs2, drain)
		for range 20 {
			after(5 * time.Minute)
			p.kill()
			p = r.start(c)
			if age := r.admin.age(); age > 6*time.Minute {
				t.Fatalf("the file is %v old, while lbd runs most of the time", age)
			}
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
	})
}

// Whether a template of persistence brings clients back decides the sysctl.
func TestAdminWarnsOfPersistence(t *testing.T) {
	for sysctl, want := range map[int]int{0: 1, 1: 0} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.host.sysctls["expire_quiescent_template"] = sysctl
			s := service(vip, server(rs2, 3), server(rs3, 2))
			s.Flags, s.Persistence.Timeout = ipvs.FlagPersistent, 5*time.Minute
			p := r.start(conf(s))
			if _, result := p.say(rs2, drain); len(result.Warnings) != want {
				t.Errorf("expire_quiescent_template=%d: want %d warnings, got %q", sysctl, want, result.Warnings)
			}
			if _, result := p.say(rs2, disable); len(result.Warnings) != 0 {
				t.Errorf("disable: want no warning, got %q", result.Warnings)
			}
		})
	}
}

// A request that waits for a ramp to be over does not begin it anew, however it is
// asked.
func TestRequest(t *testing.T) {
	now := time.Unix(1000, 0)
	ramp := fleet.Override{Weight: &fleet.WeightOverride{From: 0, To: 10, Begun: now, Over: 10 * time.Second}, Configured: 3}
	for _, tt := range []struct {
		name  string
		was   fleet.Override
		r     api.AdminRequest
		after time.Duration
		want  *fleet.WeightOverride
	}{
		{"the same again", ramp, api.AdminRequest{Weight: weight(10), OverSeconds: 10}, 5 * time.Second, ramp.Weight},
		{"at once", ramp, api.AdminRequest{Weight: weight(10)}, 5 * time.Second, &fleet.WeightOverride{From: 10, To: 10, Begun: now.Add(5 * time.Second)}},
		{"arrived", ramp, api.AdminRequest{Weight: weight(10), OverSeconds: 60}, 11 * time.Second, ramp.Weight},
		{"elsewhere, from where it is", ramp, api.AdminRequest{Weight: weight(0), OverSeconds: 20}, 5 * time.Second,
			&fleet.WeightOverride{From: 5, To: 0, Begun: now.Add(5 * time.Second), Over: 20 * time.Second}},
		{"to the configured one", ramp, api.AdminRequest{Weight: weight(3)}, 5 * time.Second, nil},
		{"to where it happens to be", ramp, api.AdminRequest{Weight: weight(5), OverSeconds: 20}, 5 * time.Second,
			&fleet.WeightOverride{From: 5, To: 5, Begun: now.Add(5 * time.Second)}},
		{"a mode leaves it", ramp, api.AdminRequest{Mode: "drain"}, 5 * time.Second, ramp.Weight},
		{"reset of nothing", fleet.Override{}, api.AdminRequest{ResetWeight: true, OverSeconds: 9}, 0, nil},
	} {
		got := request(tt.was, tt.r, 3, now.Add(tt.after))
		if diff := cmp.Diff(tt.want, got.Weight); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// status returns the status.
func (p *process) status() api.Status {
	p.r.t.Helper()
	s, err := p.Status(context.Background())
	if err != nil {
		p.r.t.Fatal(err)
	}
	return s
}
