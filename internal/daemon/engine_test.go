package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/ipvs"
)

// fakeOpener opens an engine that fails with err, and notes what happens.
func fakeOpener(events *[]string, name string, err error) opener {
	return func(context.Context, place) (*opened, error) {
		*events = append(*events, "open "+name)
		if err != nil {
			return nil, err
		}
		return &opened{version: name, close: func() error {
			*events = append(*events, "close "+name)
			return nil
		}}, nil
	}
}

func TestChooseEngine(t *testing.T) {
	t.Parallel()
	const kernel, userspace = config.EngineKernel, config.EngineUserspace
	noIPVS := fmt.Errorf("family: %w", ipvs.ErrNotAvailable)
	noQueue := errors.New("no queue")
	for _, tt := range []struct {
		name                    string
		engine, bound           config.Engine
		kernelErr, userspaceErr error

		want   config.Engine
		reason string
		// err is a part of the error, empty for none.
		err    string
		events string
	}{
		{name: "auto with IPVS", engine: config.EngineAuto, want: kernel,
			reason: "engine: auto, and the kernel has IPVS", events: "open kernel"},
		{name: "auto without IPVS", engine: config.EngineAuto, kernelErr: noIPVS, want: userspace,
			reason: "engine: auto, and the kernel has no IPVS", events: "open kernel, open userspace"},
		{name: "auto without anything", engine: config.EngineAuto, kernelErr: noIPVS, userspaceErr: noQueue,
			err: "the kernel has no IPVS (try modprobe ip_vs), and: no queue", events: "open kernel, open userspace"},
		{name: "auto without permission", engine: config.EngineAuto, kernelErr: os.ErrPermission,
			err: "permission denied", events: "open kernel"},
		{name: "auto stays in userspace", engine: config.EngineAuto, bound: userspace, want: userspace,
			reason: "engine: auto, and it has lbd's services since an earlier start", events: "open userspace"},
		{name: "auto stays in the kernel", engine: config.EngineAuto, bound: kernel, want: kernel,
			reason: "engine: auto, and the kernel has IPVS", events: "open kernel"},
		{name: "auto after the module went", engine: config.EngineAuto, bound: kernel, kernelErr: noIPVS, want: userspace,
			reason: "engine: auto, and the kernel has no IPVS", events: "open kernel, open userspace"},

		{name: "kernel", engine: kernel, want: kernel, reason: "engine: kernel in the configuration", events: "open kernel"},
		{name: "kernel without IPVS", engine: kernel, kernelErr: noIPVS,
			err: "engine: kernel, and this kernel has no IPVS: family: ", events: "open kernel"},
		{name: "kernel beside userspace", engine: kernel, bound: userspace,
			err: "lbd's services are still in the userspace engine, and the configuration says engine: kernel: run lbd --clear first"},

		{name: "userspace", engine: userspace, want: userspace, reason: "engine: userspace in the configuration", events: "open userspace"},
		{name: "userspace again", engine: userspace, bound: userspace, want: userspace,
			reason: "engine: userspace in the configuration", events: "open userspace"},
		{name: "userspace beside the kernel", engine: userspace, bound: kernel,
			err: "lbd's services are still in the kernel engine, and the configuration says engine: userspace: run lbd --clear first", events: "open kernel, close kernel"},
		{name: "userspace after the module went", engine: userspace, bound: kernel, kernelErr: noIPVS, want: userspace,
			reason: "engine: userspace in the configuration", events: "open kernel, open userspace"},
		{name: "userspace fails", engine: userspace, userspaceErr: noQueue, err: "no queue", events: "open userspace"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var events []string
			w := wish{engine: tt.engine, bound: tt.bound,
				kernel:    fakeOpener(&events, "kernel", tt.kernelErr),
				userspace: fakeOpener(&events, "userspace", tt.userspaceErr)}
			name, o, reason, err := w.choose(t.Context(), place{})
			if got := strings.Join(events, ", "); got != tt.events {
				t.Errorf("events: want %q, got %q", tt.events, got)
			}
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("want the error %q, got %v", tt.err, err)
				}
				return
			}
			if err != nil || o == nil {
				t.Fatal(err)
			}
			if name != tt.want || o.version != string(tt.want) || reason != tt.reason {
				t.Errorf("want %s, %q, got %s (%s), %q", tt.want, tt.reason, name, o.version, reason)
			}
		})
	}
}

// What a ledger has belongs to the engine that it names, and before there were
// two, to the kernel.
func TestLedgerBound(t *testing.T) {
	t.Parallel()
	owned := map[ipvs.ServiceKey]struct{}{key(vip): {}}
	for _, tt := range []struct {
		name string
		l    ledger
		want config.Engine
	}{
		{"nothing", ledger{}, ""},
		{"nothing in the kernel", ledger{engine: config.EngineKernel}, ""},
		{"an address", ledger{engine: config.EngineKernel, vips: map[VIP]struct{}{{"lo", netip.MustParseAddr("192.0.2.1")}: {}}}, ""},
		{"a service of an older lbd", ledger{owned: owned}, config.EngineKernel},
		{"a sysctl", ledger{engine: config.EngineKernel, sysctls: map[string]int{"conntrack": 0}}, config.EngineKernel},
		{"rules alone", ledger{engine: config.EngineUserspace}, config.EngineUserspace},
		{"a service in userspace", ledger{engine: config.EngineUserspace, owned: owned}, config.EngineUserspace},
	} {
		if got := tt.l.bound(); got != tt.want {
			t.Errorf("%s: want %q, got %q", tt.name, tt.want, got)
		}
	}
	l := ledger{owned: owned, sysctls: map[string]int{"conntrack": 0}}
	l.bind(config.EngineKernel, config.Userspace{})
	if len(l.owned) != 1 {
		t.Error("the services of the same engine are forgotten")
	}
	l.bind(config.EngineUserspace, config.Userspace{MarkMask: 0xff00, CTStateMask: 3, QueueBase: 7, Queues: 2})
	if len(l.owned)+len(l.sysctls) != 0 || l.engine != config.EngineUserspace || l.marks != (memory.Marks{Mask: 0xff00, State: 3, Queue: 7, Queues: 2}) {
		t.Errorf("what went with the module is still owned: %+v", l)
	}
}

// Not parallel: it is about the process.
func TestAddThreads(t *testing.T) {
	runtime.SetDefaultGOMAXPROCS()
	before := runtime.GOMAXPROCS(0)
	t.Setenv("GOMAXPROCS", "")
	restore := addThreads(3)
	if got := runtime.GOMAXPROCS(0); got != before+3 {
		t.Errorf("want %d, got %d", before+3, got)
	}
	restore()
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("after restore: want %d, got %d", before, got)
	}
	t.Setenv("GOMAXPROCS", "2")
	addThreads(3)
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("with GOMAXPROCS: want %d, got %d", before, got)
	}
}

// The daemon runs its engine, says what it says, and ends with it.
func TestEngineTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.name = config.EngineUserspace
		fail := make(chan error)
		var cleared int
		var repairs atomic.Uint64
		r.equip = func(o *opened) {
			o.version = "native queue"
			o.run = func(ctx context.Context) error {
				select {
				case err := <-fail:
					return err
				case <-ctx.Done():
					return nil
				}
			}
			o.warnings = func() []string { return []string{"the queue is full"} }
			o.check = func(c *config.Config) []string {
				return []string{fmt.Sprintf("no route to %d services", len(c.VirtualServices))}
			}
			o.repairs = repairs.Load
			o.clear = func(context.Context) error {
				if table, err := r.table.Table(t.Context()); err != nil || len(table) != 0 {
					t.Errorf("cleared before its services: %v, %v", table, err)
				}
				cleared++
				return nil
			}
		}
		path := writeFile(t, goodFile)
		p := r.startFile(path)
		st := p.mustStatus()
		if st.Engine != "userspace" || st.EngineVersion != "native queue" || !slices.Contains(st.Warnings, "the queue is full") {
			t.Errorf("status: want the engine and its warning, got %+v", st)
		}
		repairs.Store(3)
		after(3 * time.Second) // not by the next pass alone
		if got := p.mustStatus().Sync; got.Drift != 3 || got.LastDrift != "changed the rules of the engine" {
			t.Errorf("drift: want 3 repairs of the engine, got %+v", got)
		}
		rep, err := p.Check(t.Context(), api.File{Name: "x.yaml", Content: goodFile})
		if want := []string{"no route to 1 services"}; err != nil || !slices.Equal(want, rep.HostErrors) {
			t.Errorf("check: want %q, got %q, %v", want, rep.HostErrors, err)
		}
		rewrite(t, path, goodFile+"  - {name: other, address: 192.0.2.2:80}\n")
		res, err := p.Reload(t.Context())
		if want := []string{"no route to 2 services"}; err != nil || res.Reloaded || !slices.Equal(want, res.Errors) {
			t.Errorf("reload of what the engine cannot do: want %q, got %+v, %v", want, res, err)
		}
		if l, _ := recall(r.load(), time.Now()); l.bound() != config.EngineUserspace {
			t.Errorf("memory: want it bound to userspace, got %q", l.bound())
		}
		fail <- errors.New("queue lost")
		if err := <-p.done; err == nil || err.Error() != "engine: queue lost" {
			t.Errorf("want the daemon to end with the engine's error, got %v", err)
		}
		p.done <- nil // for its cleanup

		if err := p.owner.clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l, _ := recall(r.load(), time.Now()); cleared != 1 || !l.empty() {
			t.Errorf("clear: want the engine cleared once and nothing remembered, got %d, %+v", cleared, l)
		}
	})
}
