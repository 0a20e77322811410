package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// kernelRig is a namespace with real servers on its loopback device, and what
// the daemons in it remember.
type kernelRig struct {
	t      *testing.T
	ns     *netnstest.NS
	table  *ipvs.Client
	dir    string
	config string
	log    logBuffer
}

func newKernelRig(t *testing.T, config string) *kernelRig {
	t.Helper()
	netnstest.Require(t, "netns", "ipvs")
	r := &kernelRig{t: t, ns: netnstest.New(t), dir: t.TempDir()}
	for _, a := range []string{"10.0.0.2/32", "10.0.0.3/32"} {
		r.ns.AddAddr("lo", a)
	}
	var err error
	if r.table, err = ipvs.Open(ipvs.WithNetNS(r.ns.FD())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.table.Close() })
	r.config = filepath.Join(r.dir, "lbd.yaml")
	r.write(config)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of lbd:\n%s", &r.log)
		}
	})
	return r
}

func (r *kernelRig) write(config string) {
	r.t.Helper()
	rewrite(r.t, r.config, fmt.Sprintf("netns: %s\nsocket: {path: %s}\nstate_file: \"\"\n%s", r.ns.Path(), r.socket(), config))
}

func (r *kernelRig) socket() string { return filepath.Join(r.dir, "lbd.sock") }
func (r *kernelRig) runDir() string { return filepath.Join(r.dir, "run") }
func (r *kernelRig) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// start runs a daemon until the returned function stops it, and returns once its
// first pass has succeeded.
func (r *kernelRig) start() (*api.Client, func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{ConfigFile: r.config, RunDir: r.runDir(), Logger: r.logger()})
	}()
	stop := func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("run: %v", err)
		}
		done <- nil
	}
	r.t.Cleanup(stop)
	c := api.NewClient(r.socket(), 5*time.Second)
	r.eventually(func() error {
		st, err := c.Status(ctx)
		if err == nil && st.Sync.LastSuccess.IsZero() {
			err = fmt.Errorf("no success yet: %+v", st.Sync)
		}
		return err
	})
	return c, stop
}

// eventually fails unless f succeeds within a time that only a broken lbd needs.
func (r *kernelRig) eventually(f func() error) {
	r.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// wantWeights waits for a table of one service to hold these real servers.
func (r *kernelRig) wantWeights(want string) {
	r.t.Helper()
	r.eventually(func() error {
		table, err := r.table.Table(context.Background())
		if err != nil {
			return err
		}
		var got []string
		for _, e := range table {
			for _, d := range e.Destinations {
				got = append(got, fmt.Sprintf("%v=%d", d.Address, d.Weight))
			}
		}
		if s := strings.Join(got, " "); s != want {
			return fmt.Errorf("table: want %s, got %s", want, s)
		}
		return nil
	})
}

const kernelConfig = `
vip_interface: lo
timeouts: {tcp: 1h}
virtual_services:
  - name: web
    address: 192.0.2.1:80
    check: {type: tcp, interval: 1s, timeout: 1s, rise: 2, fall: 2}
    real_servers:
      - {address: 10.0.0.2:80, weight: 3}
      - {address: 10.0.0.3:80, weight: 2}
`

func TestKernelDaemon(t *testing.T) {
	r := newKernelRig(t, kernelConfig)
	two := r.ns.Listen("tcp", "10.0.0.2:80")
	r.ns.Listen("tcp", "10.0.0.3:80")
	before := r.ns.Sysctl("net.ipv4.vs.expire_nodest_conn")
	timeouts, err := r.table.Timeouts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, stop := r.start()
	r.wantWeights("10.0.0.2:80=3 10.0.0.3:80=2")
	if !strings.Contains(fmt.Sprint(r.ns.Addrs("lo")), "192.0.2.1/32") {
		t.Errorf("addresses: want the VIP, got %v", r.ns.Addrs("lo"))
	}
	if got := r.ns.Sysctl("net.ipv4.vs.expire_nodest_conn"); got != "1" {
		t.Errorf("expire_nodest_conn: want 1, got %s", got)
	}
	if got, err := r.table.Timeouts(t.Context()); err != nil || got.TCP != time.Hour {
		t.Errorf("tcp timeout: want 1h, got %v, %v", got.TCP, err)
	}

	// A server fails, lbd dies and comes back, the server recovers.
	two.Close()
	r.wantWeights("10.0.0.2:80=0 10.0.0.3:80=2")
	stop()
	r.wantWeights("10.0.0.2:80=0 10.0.0.3:80=2")
	client, stop := r.start()
	r.wantWeights("10.0.0.2:80=0 10.0.0.3:80=2")
	st, err := client.Status(t.Context())
	if err != nil || st.Sync.Ops != 0 {
		t.Errorf("operations of a restart over a right table: want 0, got %d, %v", st.Sync.Ops, err)
	}
	r.ns.Listen("tcp", "10.0.0.2:80")
	r.wantWeights("10.0.0.2:80=3 10.0.0.3:80=2")

	// A reload edits in place; a server that leaves drains away.
	r.write(strings.NewReplacer("weight: 3", "weight: 7", "      - {address: 10.0.0.3:80, weight: 2}\n", "").Replace(kernelConfig))
	res, err := client.Reload(t.Context())
	if err != nil || !res.Reloaded || res.Ops != 2 {
		t.Fatalf("reload: want 2 operations, got %+v, %v", res, err)
	}
	r.wantWeights("10.0.0.2:80=7")

	// The kernel says which schedulers it has.
	rep, err := client.Check(t.Context(), api.File{Name: "x.yaml", Content: fmt.Sprintf(
		"netns: %s\nsocket: {path: %s}\nstate_file: \"\"\n%s", r.ns.Path(), r.socket(), strings.Replace(kernelConfig, "name: web", "name: web\n    scheduler: nosuch", 1))})
	if err != nil || len(rep.Errors) != 0 || fmt.Sprint(rep.HostErrors) != "[scheduler nosuch: not in this kernel]" {
		t.Errorf("check: want the scheduler refused, got %+v, %v", rep, err)
	}

	// One instance; --clear only when it is dead.
	var locked *memory.LockedError
	if err := Clear(t.Context(), r.runDir(), r.logger()); !errors.As(err, &locked) {
		t.Errorf("clear of a live lbd: want a LockedError, got %v", err)
	}
	r.wantWeights("10.0.0.2:80=7")
	stop()
	if err := Clear(t.Context(), r.runDir(), r.logger()); err != nil {
		t.Errorf("clear: %v", err)
	}
	r.wantWeights("")
	if strings.Contains(fmt.Sprint(r.ns.Addrs("lo")), "192.0.2.1") {
		t.Errorf("addresses after clear: want no VIP, got %v", r.ns.Addrs("lo"))
	}
	if got := r.ns.Sysctl("net.ipv4.vs.expire_nodest_conn"); got != before {
		t.Errorf("expire_nodest_conn after clear: want %s, got %s", before, got)
	}
	if got, err := r.table.Timeouts(t.Context()); err != nil || got != timeouts {
		t.Errorf("timeouts after clear: want %v, got %v, %v", timeouts, got, err)
	}
}

// The list that decides ties is as it was after somebody emptied the table: the
// server that came back is still the first.
func TestKernelLostTableKeepsOrder(t *testing.T) {
	r := newKernelRig(t, strings.Replace(kernelConfig, "name: web", "name: web\n    on_failure: remove", 1))
	r.ns.Listen("tcp", "10.0.0.2:80")
	three := r.ns.Listen("tcp", "10.0.0.3:80")
	client, _ := r.start()
	r.wantWeights("10.0.0.2:80=3 10.0.0.3:80=2")
	three.Close()
	r.wantWeights("10.0.0.2:80=3")
	r.ns.Listen("tcp", "10.0.0.3:80")
	r.wantWeights("10.0.0.3:80=2 10.0.0.2:80=3")
	if err := r.table.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, err := client.Reconcile(t.Context()); err != nil || len(res.Steps) != 3 {
		t.Errorf("reconcile: want 3 steps, got %+v, %v", res, err)
	}
	r.wantWeights("10.0.0.3:80=2 10.0.0.2:80=3")
}

// To be stopped in the middle of the start is no failure.
func TestKernelStoppedInStart(t *testing.T) {
	r := newKernelRig(t, kernelConfig)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, Options{ConfigFile: r.config, RunDir: r.runDir(), Logger: r.logger()}); err != nil {
		t.Errorf("run: want no error, got %v", err)
	}
}

func TestKernelExitClear(t *testing.T) {
	r := newKernelRig(t, "on_exit: clear\n"+kernelConfig)
	_, stop := r.start()
	stop()
	r.wantWeights("")
	if strings.Contains(fmt.Sprint(r.ns.Addrs("lo")), "192.0.2.1") {
		t.Errorf("addresses: want no VIP, got %v", r.ns.Addrs("lo"))
	}
}
