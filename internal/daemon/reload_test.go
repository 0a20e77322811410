package daemon

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
)

const goodFile = `
virtual_services:
  - name: web
    address: 192.0.2.1:80
    real_servers:
      - {address: 10.0.0.2:80, weight: 3}
      - {address: 10.0.0.3:80, weight: 2}
`

// file writes a configuration and returns its path.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lbd.yaml")
	rewrite(t, path, text)
	return path
}

func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// startFile starts a daemon with a configuration file.
func (r *rig) startFile(path string) *process {
	r.t.Helper()
	l, err := load(path)
	if err != nil {
		r.t.Fatal(err)
	}
	p := r.run(l)
	synctest.Wait()
	return p
}

func (p *process) mustStatus() api.Status {
	p.r.t.Helper()
	st, err := p.Status(p.r.t.Context())
	if err != nil {
		p.r.t.Fatal(err)
	}
	return st
}

func TestReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		path := writeFile(t, goodFile)
		p := r.startFile(path)
		before := p.mustStatus()
		rewrite(t, path, strings.Replace(goodFile, "weight: 3", "weight: 7", 1))
		res, err := p.Reload(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(api.ReloadResult{Reloaded: true, Ops: 1}, res); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=7 10.0.0.3:80=2")
		if after := p.mustStatus(); after.ConfigSHA256 == before.ConfigSHA256 || after.LastReloadError != "" {
			t.Errorf("status: want another sha256 and no error, got %+v", after)
		}
		if got := r.noticed(); !strings.Contains(got, "RELOADING=1\nMONOTONIC_USEC=") || !strings.HasSuffix(got, "READY=1") {
			t.Errorf("service manager: want RELOADING and then READY, got\n%s", got)
		}
	})
}

// A reload does not make a daemon ready that is not.
func TestReloadBeforeReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.table.SetAvailable(false)
		path := writeFile(t, goodFile)
		p := r.startFile(path)
		rewrite(t, path, strings.Replace(goodFile, "weight: 3", "weight: 7", 1))
		res, err := p.Reload(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// ipvsctl reload ends with status 1 by the error.
		if !res.Reloaded || len(res.Errors) != 1 || !strings.Contains(res.Errors[0], "IPVS not available") {
			t.Errorf("result: want it loaded with an error, got %+v", res)
		}
		if got := r.noticed(); strings.Contains(got, "READY=1") {
			t.Errorf("service manager: want no READY, got\n%s", got)
		}
		r.table.SetAvailable(true)
		after(retryMax)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=7 10.0.0.3:80=2")
	})
}

// A file that cannot be used changes nothing but the status and the log.
func TestReloadRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text, want string
	}{
		{"syntax", "virtual_services: [", "lbd.yaml:2:1: not YAML"},
		{"unknown key", "nosuch: 1\n" + goodFile, `lbd.yaml:1:1: unknown key "nosuch"`},
		{"socket", goodFile + "socket: {path: /run/other.sock}\n", `socket.path: changed from "/run/lbd/lbd.sock" to "/run/other.sock", which needs a restart of lbd`},
		{"netns", goodFile + "netns: other\n", `netns: changed from "" to "other", which needs a restart of lbd`},
		{"engine", goodFile + "engine: kernel\n", `engine: changed from "auto" to "kernel", which needs a restart of lbd`},
		{"userspace", goodFile + "userspace: {queues: 64}\n", fmt.Sprintf(`userspace.queues: changed from "%d" to "64", which needs a restart of lbd`, queuesOf(config.Userspace{}))},
		{"userspace mask", goodFile + "userspace: {mark_mask: 0xffff00}\n", `userspace.mark_mask: changed from "0x0fffff00" to "0x00ffff00", which needs`},
		{"other engine", strings.Replace(goodFile, "    real", "    scheduler: p2c\n    real", 1),
			`lbd.yaml:5:16: scheduler: p2c is of the userspace engine alone: the kernel has rr, wrr, lc, wlc, sed, nq, fo, ovf, sh, dh, mh, lblc, lblcr and twos (the kernel engine runs here)`},
		{"gone", "", "no such file or directory"},
		{"named pipe", "", "is a named pipe, want a regular file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				path := writeFile(t, goodFile)
				p := r.startFile(path)
				before := p.mustStatus()
				r.table.ResetRequests()
				if tt.text == "" {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				}
				if tt.name == "named pipe" { // whose writer never comes
					if err := syscall.Mkfifo(path, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if tt.text != "" {
					rewrite(t, path, tt.text)
				}
				r.hangup <- syscall.SIGHUP
				synctest.Wait()
				if !strings.Contains(r.log.String(), "reload refused") {
					t.Errorf("log: want the refusal, got\n%s", r.log)
				}
				res, err := p.Reload(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if res.Reloaded || len(res.Errors) != 1 || !strings.Contains(res.Errors[0], tt.want) {
					t.Errorf("result: want the error %q, got %+v", tt.want, res)
				}
				after := p.mustStatus()
				if after.ConfigSHA256 != before.ConfigSHA256 || !strings.Contains(after.LastReloadError, tt.want) {
					t.Errorf("status: want the old sha256 and the error %q, got %+v", tt.want, after)
				}
				if n := r.table.Requests().Writes; n != 0 {
					t.Errorf("writes: want 0, got %d", n)
				}
				r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2")

				os.Remove(path)
				rewrite(t, path, goodFile)
				if res, err := p.Reload(t.Context()); err != nil || !res.Reloaded {
					t.Errorf("reload of the good file: want it loaded, got %+v, %v", res, err)
				}
				if st := p.mustStatus(); st.LastReloadError != "" {
					t.Errorf("status after a good reload: want no error, got %q", st.LastReloadError)
				}
			})
		})
	}
}

// A stop in the middle of a reload is not the refusal of a file.
func TestReloadWhileStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.startFile(writeFile(t, goodFile))
		busy := make(chan struct{})
		go p.owner.do(t.Context(), p.stopped, func(context.Context) { <-busy })
		synctest.Wait()
		answer := make(chan error, 1)
		go func() {
			res, err := p.Reload(t.Context())
			if err == nil {
				err = fmt.Errorf("no error but %+v", res)
			}
			answer <- err
		}()
		synctest.Wait()
		p.cancel()
		synctest.Wait()
		close(busy)
		if err := <-answer; !errors.Is(err, api.ErrUnavailable) {
			t.Errorf("reload of a stopping daemon: want %v, got %v", api.ErrUnavailable, err)
		}
	})
}

// What is validated is what is loaded: the file is read once (keepalived
// 32e78047).
func TestReloadReadsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := writeFile(t, goodFile)
	l, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	p := r.run(l)
	rewrite(t, path, strings.Replace(goodFile, "weight: 3", "weight: 7", 1))
	opened := countOpens(t, path)
	res, err := p.Reload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !res.Reloaded {
		t.Fatalf("reload: want it loaded, got %+v", res)
	}
	r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=7 10.0.0.3:80=2")
	if n := opened(); n != 1 {
		t.Errorf("the file was opened: want once, got %d times", n)
	}
}

// countOpens returns a function that says how often a file was opened since.
func countOpens(t *testing.T, path string) func() int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	// Of equal events in a row the kernel keeps one: reads and closes tell two
	// opens apart.
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN|unix.IN_CLOSE_NOWRITE); err != nil {
		t.Fatal(err)
	}
	return func() int {
		buf := make([]byte, 64*unix.SizeofInotifyEvent)
		size, err := unix.Read(fd, buf)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		// The watch is of a file: no event has a name.
		for ; size >= unix.SizeofInotifyEvent; size -= unix.SizeofInotifyEvent {
			if binary.NativeEndian.Uint32(buf[4:])&unix.IN_OPEN != 0 {
				n++
			}
			buf = buf[unix.SizeofInotifyEvent:]
		}
		return n
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.startFile(writeFile(t, goodFile))
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 5})
		r.table.SetConns(dkey(vip, rs2), ipvs.Conns{Active: 9})
		r.table.ResetRequests()
		plan, err := p.Diff(t.Context(), api.File{Name: "new.yaml", Content: `
virtual_services:
  - name: web
    address: 192.0.2.1:80
    scheduler: wrr
    real_servers:
      - {address: 10.0.0.2:80, weight: 4}
      - {address: 10.0.0.4:80, weight: 1}
`})
		if err != nil {
			t.Fatal(err)
		}
		want := api.Plan{Steps: []api.Step{
			{Op: "update service", Service: "web", Change: "scheduler wlc -> wrr (refuses new connections for an instant)"},
			{Op: "add destination", Service: "web", RealServer: "10.0.0.4:80", Change: "weight 1, forwarding Masq"},
			{Op: "update destination", Service: "web", RealServer: "10.0.0.2:80", Change: "weight 3 -> 4"},
			{Op: "drain destination", Service: "web", RealServer: "10.0.0.3:80", Change: "weight 2 -> 0; deleted when no connection is active, in 5m0s at the latest", ActiveConnections: 5},
		}}
		if diff := cmp.Diff(want, plan); diff != "" {
			t.Errorf("plan (-want +got):\n%s", diff)
		}
		if plan, err = p.Diff(t.Context(), api.File{Name: "same.yaml", Content: goodFile}); err != nil || len(plan.Steps) != 0 {
			t.Errorf("plan of the same file: want no step, got %+v, %v", plan, err)
		}
		if plan, err = p.Diff(t.Context(), api.File{Name: "bad.yaml", Content: "x: 1\n"}); err != nil || len(plan.Errors) == 0 {
			t.Errorf("plan of a bad file: want errors, got %+v, %v", plan, err)
		}
		if n := r.table.Requests().Writes; n != 0 {
			t.Errorf("writes: want 0, got %d", n)
		}
	})
}

// What the file lacks of a service that it takes over would drain.
func TestDiffOfTakeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.startFile(writeFile(t, goodFile))
		theirs := service(vip2).Service
		if err := r.table.Do(
			ipvs.Op{Kind: ipvs.OpAddService, Service: theirs},
			ipvs.Op{Kind: ipvs.OpAddDestination, Service: theirs, Destination: server(rs3, 2).Destination},
		); err != nil {
			t.Fatal(err)
		}
		r.table.SetConns(dkey(vip2, rs3), ipvs.Conns{Active: 5})
		plan, err := p.Diff(t.Context(), api.File{Name: "new.yaml", Content: goodFile + "  - {address: 192.0.2.2:80, drain_timeout: 1m}\n"})
		if err != nil {
			t.Fatal(err)
		}
		want := []api.Step{{Op: "drain destination", Service: "192.0.2.2:80", RealServer: rs3,
			Change: "weight 2 -> 0; deleted when no connection is active, in 1m0s at the latest", ActiveConnections: 5}}
		if diff := cmp.Diff(want, plan.Steps); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
	})
}

// A plan tells what a load decides without a write, too.
func TestDiffOfFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const file = `
virtual_services:
  - name: web
    address: 192.0.2.1:80
    real_servers:
      - {address: 10.0.0.2:80, weight: 11}
      - {address: 10.0.0.3:80, weight: 0}
      - {address: 10.0.0.4:80, weight: 2}
`
		p := r.startFile(writeFile(t, file))
		c := *p.owner.view.Load().loaded.Config
		c.VirtualServices = slices.Clone(c.VirtualServices)
		web := &c.VirtualServices[0]
		web.RealServers = slices.Clone(web.RealServers)
		web.RealServers[0].Probes = []healthcheck.Probe{r.probe("fake", rs2)}
		r.net.set(rs2, errRefused)
		if err := p.switchTo(&c); err != nil {
			t.Fatal(err)
		}
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=0 10.0.0.4:80=2")
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 4})
		// The check of the file has no result yet, so the server is down by what is
		// remembered.
		next := strings.NewReplacer("weight: 11}", "weight: 9, check: {type: tcp}}",
			"      - {address: 10.0.0.3:80, weight: 0}\n", "",
			"weight: 2}", "weight: 2, drain_timeout: 0s}").Replace(file)
		plan, err := p.Diff(t.Context(), api.File{Name: "new.yaml", Content: next})
		if err != nil {
			t.Fatal(err)
		}
		want := api.Plan{Steps: []api.Step{
			{Op: "update destination", Service: "web", RealServer: "10.0.0.2:80", Change: "configured weight 11 -> 9, programmed once the server is up"},
			{Op: "drain destination", Service: "web", RealServer: "10.0.0.3:80", Change: "weight stays 0; deleted when no connection is active, in 5m0s at the latest", ActiveConnections: 4},
		}}
		if diff := cmp.Diff(want, plan); diff != "" {
			t.Errorf("plan (-want +got):\n%s", diff)
		}
	})
}

// A plan knows how checks start: down for who is new, and not for who was in.
func TestDiffOfChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.startFile(writeFile(t, goodFile))
		next := strings.Replace(goodFile, "weight: 3}", "weight: 3, check: {type: tcp, start: down}}", 1) +
			"      - {address: 10.0.0.4:80, weight: 1, check: {type: tcp, start: down}}\n"
		plan, err := p.Diff(t.Context(), api.File{Name: "new.yaml", Content: next})
		if err != nil {
			t.Fatal(err)
		}
		want := api.Plan{Steps: []api.Step{
			{Op: "add destination", Service: "web", RealServer: "10.0.0.4:80", Change: "weight 0, forwarding Masq"},
		}}
		if diff := cmp.Diff(want, plan); diff != "" {
			t.Errorf("plan (-want +got):\n%s", diff)
		}
	})
}

// With a drain_timeout of 0 a load deletes at once, and the plan says so.
func TestDiffWithoutDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		file := strings.ReplaceAll(goodFile, "weight: 2}", "weight: 2, drain_timeout: 0s}")
		p := r.startFile(writeFile(t, file))
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 5})
		plan, err := p.Diff(t.Context(), api.File{Name: "new.yaml", Content: strings.Replace(file,
			"      - {address: 10.0.0.3:80, weight: 2, drain_timeout: 0s}\n", "", 1)})
		if err != nil {
			t.Fatal(err)
		}
		want := api.Plan{Steps: []api.Step{{Op: "delete destination", Service: "web", RealServer: "10.0.0.3:80", ActiveConnections: 5}}}
		if diff := cmp.Diff(want, plan); diff != "" {
			t.Errorf("plan (-want +got):\n%s", diff)
		}
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.table.SetSchedulers("wlc", "rr")
		p := r.startFile(writeFile(t, goodFile))
		file := strings.Replace(goodFile, "name: web", "name: web\n    scheduler: wrr", 1) +
			"  - {name: other, address: 192.0.2.2:80, scheduler: rr}\n"
		for range 2 {
			rep, err := p.Check(t.Context(), api.File{Name: "new.yaml", Content: file})
			if err != nil {
				t.Fatal(err)
			}
			want := api.CheckReport{HostErrors: []string{"scheduler wrr: not in this kernel"}}
			if diff := cmp.Diff(want, rep, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(api.CheckReport{}, "Warnings")); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2")
		}
		rep, err := p.Check(t.Context(), api.File{Name: "bad.yaml", Content: "x: 1\n"})
		if err != nil || len(rep.Errors) == 0 || !strings.HasPrefix(rep.Errors[0], "bad.yaml:1:1: ") {
			t.Errorf("report of a bad file: want its errors, got %+v, %v", rep, err)
		}
		other := strings.Replace(goodFile, "    real", "    ties: random\n    real", 1)
		rep, err = p.Check(t.Context(), api.File{Name: "new.yaml", Content: other})
		want := []string{"new.yaml:5:11: ties: random is of the userspace engine alone: in the kernel the first real server wins (the kernel engine runs here)"}
		if diff := cmp.Diff(want, rep.HostErrors); err != nil || diff != "" {
			t.Errorf("report of a file for another engine: %v (-want +got):\n%s", err, diff)
		}
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2")
		if len(r.load().Owned) != 1 {
			t.Errorf("owned: want 1 service, got %v", r.load().Owned)
		}
	})
}

// A file with thousands of made-up schedulers does not keep the owner busy: for
// each, a kernel runs modprobe.
func TestCheckFewSchedulers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.table.SetSchedulers("wlc")
		p := r.startFile(writeFile(t, goodFile))
		tried := 0
		r.table.SetHooks(hooks(func(ipvs.Op) { tried++ }))
		var file strings.Builder
		file.WriteString("virtual_services:\n")
		for i := range maxSchedulers + 8 {
			fmt.Fprintf(&file, "  - {address: 192.0.2.7:%d, scheduler: s%d}\n", i+1, i)
		}
		rep, err := p.Check(t.Context(), api.File{Name: "new.yaml", Content: file.String()})
		if err != nil {
			t.Fatal(err)
		}
		if want := "40 schedulers: only 32 of them were looked for in this kernel"; len(rep.HostErrors) != maxSchedulers+1 || rep.HostErrors[0] != want {
			t.Errorf("host errors: want %q and %d more, got %q", want, maxSchedulers, rep.HostErrors)
		}
		if tried != maxSchedulers {
			t.Errorf("services made: want %d, got %d", maxSchedulers, tried)
		}
	})
}

// A reload that cannot wait deletes what left the file, now and before; one that is
// refused ends no drain.
func TestReloadNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		path := writeFile(t, goodFile+"      - {address: 10.0.0.4:80, weight: 1}\n")
		p := r.startFile(path)
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 2})
		r.table.SetConns(dkey(vip, rs4), ipvs.Conns{Active: 2})
		rewrite(t, path, goodFile)
		if res, err := p.Reload(t.Context()); err != nil || !res.Reloaded {
			t.Fatalf("reload: %+v, %v", res, err)
		}
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2 10.0.0.4:80=0")
		rewrite(t, path, "nonsense: 1\n")
		if res, err := p.ReloadNow(t.Context()); err != nil || res.Reloaded {
			t.Fatalf("reload of nonsense: %+v, %v", res, err)
		}
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2 10.0.0.4:80=0")
		rewrite(t, path, strings.Replace(goodFile, "      - {address: 10.0.0.3:80, weight: 2}\n", "", 1))
		res, err := p.ReloadNow(t.Context())
		if diff := cmp.Diff(api.ReloadResult{Reloaded: true, Ops: 2}, res); err != nil || diff != "" {
			t.Errorf("result (-want +got): %v\n%s", err, diff)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
	})
}
