package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/e2e"
)

// workers is how many requests a real server serves at once.
const workers = 32

// work is what each real server does.
func work() []rig.Work {
	return []rig.Work{
		{Workers: workers, Mean: 30 * time.Millisecond},
		{Workers: workers, Mean: 60 * time.Millisecond, Spread: 20 * time.Millisecond},
		{Workers: workers, Mean: 100 * time.Millisecond, Spread: 50 * time.Millisecond},
	}
}

// scheduler is a way to choose a real server.
type scheduler struct {
	label, name string
	weights     []int
}

// The labels of those that are compared.
const (
	labelRR = "rr"
	labelLC = "lc"
)

// schedulers are in the order of their rows. mh is the consistent hash; its key
// is the client's address, and each request comes from the next address.
func schedulers() []scheduler {
	return []scheduler{
		{labelRR, "rr", []int{1, 1, 1}},
		{"wrr 3:2:1", "wrr", []int{3, 2, 1}},
		{"mh", "mh", []int{1, 1, 1}},
		{labelLC, "lc", []int{1, 1, 1}},
		{"wlc 3:2:1", "wlc", []int{3, 2, 1}},
	}
}

// play makes all requests to one scheduler.
func (o options) play(ctx context.Context, s scheduler) (out *rig.Outcome, err error) {
	dir, err := os.MkdirTemp("", "lbd-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	err = e2e.WithHost(func(h *e2e.Host) error {
		r := rig.New(h, rig.ProgramsIn(o.bin), len(work()))
		slowest := time.Duration(0)
		for i, w := range work() {
			w.Mean, w.Spread = w.Mean*time.Duration(o.slow), w.Spread*time.Duration(o.slow)
			slowest = max(slowest, w.Mean)
			if err := r.Serve(ctx, i, w); err != nil {
				return err
			}
		}
		c := rig.LBD{Engine: o.engine, Scheduler: s.name, Socket: filepath.Join(dir, "lbd.sock"), Weights: s.weights}
		file := filepath.Join(dir, "lbd.yaml")
		if err := os.WriteFile(file, []byte(c.Config()), 0o600); err != nil {
			return err
		}
		lbd := e2e.NewLBD(h, r.Balancer, filepath.Join(o.bin, "lbd"), file, dir)
		if err := lbd.Start(); err != nil {
			return err
		}
		out, err = r.Run(ctx, rig.Load{
			Kind: rig.Requests, Connections: o.clients, Threads: 1, Count: o.requests,
			// As long as the slowest server needs for all of them.
			Time:    time.Duration(o.requests/workers+1) * slowest,
			Sources: rig.MaxSources, Ports: sourcePorts, To: netip.AddrPortFrom(rig.VIP(), rig.AnswerPort),
		})
		if err != nil {
			return fmt.Errorf("%w\n%s", err, lbd.Log())
		}
		return lbd.Stop()
	})
	return out, err
}

// sourcePorts of each address make more tuples than there are requests by
// default: each is a new one to the balancer, as most of a real client's are.
const sourcePorts = 1000

// share formats what each real server did.
func share(o *rig.Outcome) string {
	var parts []string
	for i := range work() {
		parts = append(parts, fmt.Sprint(o.Servers[rig.Name(i)]))
	}
	return strings.Join(parts, "/")
}
