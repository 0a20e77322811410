package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/e2e"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// startLBD starts the lbd program with an engine.
func (t *trial) startLBD(engine string) func(context.Context, netnstest.TB, *rig.Rig) (*running, error) {
	return func(_ context.Context, tb netnstest.TB, r *rig.Rig) (*running, error) {
		dir, err := os.MkdirTemp(t.dir, "lbd-")
		if err != nil {
			return nil, err
		}
		c := rig.LBD{Engine: engine, Socket: filepath.Join(dir, "lbd.sock"), Scheduler: "wlc", Weights: make([]int, servers)}
		for i := range c.Weights {
			c.Weights[i] = 1
		}
		file := filepath.Join(dir, "lbd.yaml")
		if err := os.WriteFile(file, []byte(c.Config()), 0o600); err != nil {
			return nil, err
		}
		lbd := e2e.NewLBD(tb, r.Balancer, filepath.Join(t.bin, "lbd"), file, dir)
		if err := lbd.Start(); err != nil {
			return nil, fmt.Errorf("start lbd: %w", err)
		}
		return &running{func(s syscall.Signal) error { return lbd.Signal(s) }, lbd.Stop, lbd.Log}, nil
	}
}
