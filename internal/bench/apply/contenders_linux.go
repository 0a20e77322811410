package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/e2e"
	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/reconcile"
	"github.com/lbd-project/lbd/ipvs"
)

// limit bounds each programming of the table.
const limit = 3 * time.Minute

// restore times ipvsadm -R, the process included.
func (b *trial) restore(ns *netnstest.NS) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ipvsadm", "-R")
	cmd.Stdin = strings.NewReader(b.spec.ipvsadm())
	begin := time.Now()
	if _, err := ns.Run(cmd); err != nil {
		return 0, fmt.Errorf("ipvsadm -R: %w", err)
	}
	return time.Since(begin), nil
}

// keepalived times keepalived from its start until the table is whole. Only its
// checker process runs, and it has nothing to check.
func (b *trial) keepalived(ns *netnstest.NS) (took time.Duration, err error) {
	file := filepath.Join(b.dir, "keepalived.conf")
	if err := os.WriteFile(file, []byte(b.spec.keepalived()), 0o600); err != nil {
		return 0, err
	}
	client, err := ipvs.Open(ipvs.WithNetNS(ns.FD()))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	log, err := os.Create(filepath.Join(b.dir, "keepalived.log"))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	pid := filepath.Join(b.dir, "keepalived.pid")
	cmd := exec.Command("keepalived", "--dont-fork", "--log-console", "--check", "--use-file", file,
		"--pid", pid, "--checkers_pid", pid+".checkers")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	begin := time.Now()
	if err := ns.Start(cmd); err != nil {
		return 0, err
	}
	defer func() {
		// The whole group: it would clear its table on a SIGTERM, and take long.
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		if err != nil {
			text, _ := os.ReadFile(log.Name())
			err = fmt.Errorf("%w\n%s", err, text)
		}
	}()
	// It writes in the order of its file, so a look at the last service is enough
	// and costs it next to nothing.
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		list, err := client.Destinations(ctx, b.spec.lastKey())
		if err != nil {
			return 0, fmt.Errorf("wait for keepalived: %w", err)
		}
		if len(list) == b.spec.servers {
			return time.Since(begin), nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return 0, errors.New("keepalived did not program the table in time")
		}
	}
}

// start times the lbd program from its start, with its file to parse, until it
// says that it is ready, at which the table must be whole.
func (b *trial) start(ns *netnstest.NS) (time.Duration, error) {
	dir, err := os.MkdirTemp(b.dir, "start-")
	if err != nil {
		return 0, err
	}
	file := filepath.Join(dir, "lbd.yaml")
	if err := os.WriteFile(file, []byte(b.spec.lbd(filepath.Join(dir, "lbd.sock"))), 0o600); err != nil {
		return 0, err
	}
	lbd := e2e.NewLBD(b.host, ns, b.lbd, file, dir)
	defer lbd.Kill()
	begin := time.Now()
	if err := lbd.Start(); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}

// parse returns the configuration of lbd and how long it took to parse.
func (b *trial) parse() (*config.Config, time.Duration, error) {
	text := []byte(b.spec.lbd("/run/lbd/lbd.sock"))
	begin := time.Now()
	c, err := config.Parse("lbd.yaml", text)
	return c, time.Since(begin), err
}

// apply times lbd's own path from a parsed configuration to the programmed
// table. It returns how many requests a second pass writes.
func (b *trial) apply(ns *netnstest.NS, c *config.Config) (time.Duration, int, error) {
	client, err := ipvs.Open(ipvs.WithNetNS(ns.FD()))
	if err != nil {
		return 0, 0, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	begin := time.Now()
	if _, err := new(reconcile.Reconciler).Pass(ctx, client, desired(c)); err != nil {
		return 0, 0, fmt.Errorf("first pass: %w", err)
	}
	took := time.Since(begin)
	counting := &countingTable{Client: client}
	if _, err := new(reconcile.Reconciler).Pass(ctx, counting, desired(c)); err != nil {
		return 0, 0, fmt.Errorf("second pass: %w", err)
	}
	return took, counting.ops, nil
}

// desired is what the daemon derives from a configuration whose servers have no
// checks.
func desired(c *config.Config) reconcile.Desired {
	f := fleet.Decide(fleet.Input{
		Config: c,
		Probe:  func(*healthcheck.Probe) healthcheck.Status { return healthcheck.Status{} },
	})
	d := reconcile.Desired{Owned: map[ipvs.ServiceKey]struct{}{}}
	for _, s := range f.Services {
		ds := reconcile.DesiredService{Name: s.Name, Service: s.Service}
		for _, r := range s.Servers {
			if r.Present {
				ds.Destinations = append(ds.Destinations, r.Destination)
			}
		}
		d.Services = append(d.Services, ds)
	}
	return d
}

// countingTable counts what is written.
type countingTable struct {
	*ipvs.Client
	ops int
}

func (t *countingTable) Apply(ctx context.Context, ops []ipvs.Op) error {
	t.ops += len(ops)
	return t.Client.Apply(ctx, ops)
}

// readings is how often the counts are read in a round. The mirror keeps its
// client and reads every second, so one cold reading says little of its cost.
const readings = 3

// mirror times readings of all counts and as many of ipvsadm -Ln, in turn.
func (b *trial) mirror(ns *netnstest.NS) error {
	client, err := ipvs.Open(ipvs.WithNetNS(ns.FD()))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for range readings {
		begin := time.Now()
		got, err := client.Counts(ctx)
		b.times.add(timeCounts, time.Since(begin))
		if err == nil && len(got) != b.spec.services*b.spec.servers {
			err = fmt.Errorf("%d real servers, want %d", len(got), b.spec.services*b.spec.servers)
		}
		if err != nil {
			return fmt.Errorf("read counts: %w", err)
		}
		begin = time.Now()
		out, err := ns.Run(exec.CommandContext(ctx, "ipvsadm", "-Ln"))
		b.times.add(timeList, time.Since(begin))
		if n := strings.Count(out, "->") - 1; err == nil && n != len(got) {
			err = fmt.Errorf("%d real servers, want %d", n, len(got))
		}
		if err != nil {
			return fmt.Errorf("ipvsadm -Ln: %w", err)
		}
	}
	return nil
}
