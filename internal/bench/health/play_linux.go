package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/internal/netnstest"
)

const (
	apiTimeout = 30 * time.Second
	// startTimeout is how long all first checks may take.
	startTimeout = time.Minute
	// settle is from the first checks until the measurement.
	settle = 3 * time.Second
)

// findings are what was measured.
type findings struct {
	elapsed time.Duration
	checks  uint64
	// cpu is lbd's processor time, host that of everybody.
	cpu, host time.Duration
	// memory is in kB.
	memory int
	// found is by the checks, out is out of the table.
	found, out detection
}

// play runs the benchmark.
func (o options) play(ctx context.Context, t netnstest.TB) (*findings, error) {
	l, err := newLab(t, o)
	if err != nil {
		return nil, err
	}
	if err := l.lbd.Start(); err != nil {
		return nil, err
	}
	client := api.NewClient(l.socket, apiTimeout)
	if err := waitUp(ctx, client); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, l.lbd.Log())
	}
	if err := sleep(ctx, settle); err != nil {
		return nil, err
	}
	f := &findings{}
	pid := l.lbd.PID()
	before, err := look(ctx, client, pid)
	if err != nil {
		return nil, err
	}
	died, err := l.killAll(ctx, o)
	if err != nil {
		return nil, err
	}
	after, err := look(ctx, client, pid)
	if err != nil {
		return nil, err
	}
	f.elapsed = after.at.Sub(before.at)
	f.checks = after.checks - before.checks
	f.cpu = after.cpu - before.cpu
	f.host = after.host - before.host
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	if f.memory, err = bench.Memory(status, "VmHWM"); err != nil {
		return nil, err
	}
	return f, l.await(ctx, f, died, o)
}

// await reads the log until all deaths are in it, or the last could have been
// found thrice.
func (l *lab) await(ctx context.Context, f *findings, died deaths, o options) (err error) {
	for deadline := time.Now().Add(3 * o.bound()); ; {
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		f.found, f.out, err = died.find(l.lbd.Log())
		if err != nil || f.out.quantile(1) < never && f.found.quantile(1) < never || time.Now().After(deadline) {
			return err
		}
	}
}

// killAll kills targets at random for the time of the measurement. It returns
// when each died.
func (l *lab) killAll(ctx context.Context, o options) (deaths, error) {
	order := rand.Perm(o.targets)
	died := make(deaths)
	tick := time.NewTicker(time.Second / ticks)
	defer tick.Stop()
	for range int(o.time * ticks / time.Second) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		n := o.deaths / ticks
		at, err := l.kill(ctx, order[:n])
		if err != nil {
			return nil, err
		}
		for _, i := range order[:n] {
			died[target(i)] = at
		}
		order = order[n:]
	}
	return died, nil
}

// waitUp waits until every real server is up.
func waitUp(ctx context.Context, c *api.Client) error {
	for deadline := time.Now().Add(startTimeout); ; {
		services, err := c.Services(ctx)
		if err != nil {
			return err
		}
		waiting := 0
		for _, s := range services {
			for _, rs := range s.RealServers {
				if rs.State != "up" {
					waiting++
				}
			}
		}
		if waiting == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d real servers are not up after %v", waiting, startTimeout)
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// sight is what lbd has done until a moment.
type sight struct {
	at        time.Time
	checks    uint64
	cpu, host time.Duration
}

func look(ctx context.Context, c *api.Client, pid int) (sight, error) {
	services, err := c.Services(ctx)
	if err != nil {
		return sight{}, err
	}
	s := sight{at: time.Now()}
	for _, svc := range services {
		for _, rs := range svc.RealServers {
			for _, check := range rs.Checks {
				s.checks += check.Checks
			}
		}
	}
	if s.cpu, err = processCPU(pid); err != nil {
		return sight{}, err
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return sight{}, err
	}
	s.host, err = parseHost(stat)
	return s, err
}

func (f *findings) rate() float64 { return float64(f.checks) / f.elapsed.Seconds() }

func (f *findings) busy() float64 { return f.cpu.Seconds() / f.elapsed.Seconds() }

// String says in words what the results say in figures.
func (f *findings) String() string {
	perCheck := time.Duration(0)
	if f.checks > 0 {
		perCheck = f.cpu / time.Duration(f.checks)
	}
	text := fmt.Sprintf("%d checks in %v, %v of processor each, all of lbd's work counted; %.2f processors were busy, %.2f with lbd\n"+
		"found by the checks: %v\nout of the table: %v",
		f.checks, f.elapsed.Round(time.Millisecond), perCheck.Round(time.Microsecond), f.host.Seconds()/f.elapsed.Seconds(), f.busy(), f.found, f.out)
	if f.found.mistaken > 0 {
		text += "\ncalled dead and alive, the first of them: " + f.found.mistake
	}
	return text
}

// results are the figures with their bars. The rate that is asked for is that of
// the interval, which jitter makes a little higher.
func (f *findings) results(o options) []bench.Result {
	return []bench.Result{
		{Name: "checks_per_second", Value: f.rate(), Bar: bench.AtLeast(float64(o.targets) / o.interval.Seconds())},
		{Name: "detect_p99_vs_bound", Value: f.found.quantile(0.99).Seconds() / o.bound().Seconds(), Bar: bench.AtMost(1)},
		{Name: "health_table_p99", Value: f.out.quantile(0.99).Seconds()},
		{Name: "health_cpu", Value: f.busy()},
		{Name: "health_memory_mib", Value: float64(f.memory) / 1024},
		{Name: "health_false", Value: float64(f.found.mistaken), Bar: bench.AtMost(0)},
	}
}
