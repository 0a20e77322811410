package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/e2e"
)

// trial is a run of the benchmark.
type trial struct {
	options
	out     io.Writer
	rig     *rig.Rig
	dir     string
	samples bench.Samples
}

// play measures all.
func (t *trial) play(ctx context.Context, h *e2e.Host) (err error) {
	if t.dir, err = os.MkdirTemp("", "lbd-bench-"); err != nil {
		return err
	}
	h.Cleanup(func() { os.RemoveAll(t.dir) })
	t.rig = rig.New(h, rig.ProgramsIn(t.bin), servers)
	for i := range servers {
		if err := t.rig.Serve(ctx, i, rig.Work{Workers: 1}); err != nil {
			return err
		}
	}
	if err := t.conntrack(); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%d rounds of %v each, Linux %s, %d processors\n", t.rounds, t.time, release(), runtime.NumCPU())
	for round := range t.rounds {
		if err := t.round(ctx, round); err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	return nil
}

var modules = []string{
	"nf_conntrack", "nf_conntrack_netlink", "nfnetlink_queue", "nfnetlink_cttimeout", "nf_tables", "nf_nat",
	"nft_ct", "nft_chain_nat", "nft_nat", "nft_numgen", "nft_queue", "nft_compat", "nft_reject_ipv4",
	"nft_dup_ipv4", "xt_NFQUEUE",
}

// conntrack sets what all contenders have in common. Accounting, which lbd
// needs, costs the others the same. Events are made of none but the connections
// that rules choose, as lbd's do: by default the kernel makes some of each
// connection as soon as a program in any network namespace listens to events,
// and the limit would pay for that program.
func (t *trial) conntrack() error {
	return e2e.WithHost(func(h *e2e.Host) error {
		// Where conntrack is a module, the settings are there once it is loaded. The
		// others are what lbd's rules use: one by one, emulation takes half a minute
		// to load them. Those that are no modules here, or are absent, do not matter.
		for _, module := range modules {
			exec.Command("modprobe", module).Run()
		}
		t.rig.Balancer.SetSysctl("net.netfilter.nf_conntrack_acct", "1")
		t.rig.Balancer.SetSysctl("net.netfilter.nf_conntrack_events", "0")
		return nil
	})
}

// round lets the contenders take turns, a metric after the other. Another one
// begins in each round: what follows what must not matter.
func (t *trial) round(ctx context.Context, round int) error {
	for _, m := range metrics(t.time) {
		if !slices.Contains(t.metrics, m.name) {
			continue
		}
		for turn := range m.turns {
			fmt.Fprintf(t.out, "round %d %s:", round+1, m.name)
			if err := t.turn(ctx, m, round+turn); err != nil {
				return err
			}
		}
	}
	return nil
}

// turn measures each contender once, beginning with the first-th.
func (t *trial) turn(ctx context.Context, m metric, first int) error {
	defer fmt.Fprintln(t.out)
	for i := range t.contenders {
		name := t.contenders[(first+i)%len(t.contenders)]
		if err := t.measure(ctx, t.contender(name), m); err != nil {
			return fmt.Errorf("%s, %s: %w", name, m.name, err)
		}
		fmt.Fprintf(t.out, "  %s", name)
		for _, f := range m.figures {
			fmt.Fprintf(t.out, " %s %s", number(t.samples.Last(f.name, name)), f.unit)
		}
	}
	return nil
}

// measure starts a contender, measures it and takes it away.
func (t *trial) measure(ctx context.Context, c contender, m metric) error {
	return e2e.WithHost(func(h *e2e.Host) error {
		r, err := c.start(ctx, h)
		if err != nil {
			return err
		}
		m.load.To = c.to(m.port)
		o, err := t.rig.Run(ctx, m.load)
		if err == nil && c.name != nameRouting {
			err = m.check(o)
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, r.log())
		}
		if err := errors.Join(err, r.stop(), t.clean(ctx)); err != nil {
			return err
		}
		for _, f := range m.figures {
			t.samples.Add(f.name, c.name, f.of(o))
		}
		return nil
	})
}

// clean forgets the connections of a contender that has ended, and sees that it
// left no rules: the next one would pay for them.
func (t *trial) clean(ctx context.Context) error {
	if _, err := t.rig.Balancer.Run(exec.CommandContext(ctx, "conntrack", "-F")); err != nil {
		return fmt.Errorf("conntrack -F: %w", err)
	}
	rules, err := t.rig.Balancer.Run(exec.CommandContext(ctx, "nft", "list", "ruleset"))
	if err != nil {
		return fmt.Errorf("nft list ruleset: %w", err)
	}
	if strings.TrimSpace(rules) != "" {
		return fmt.Errorf("rules are left:\n%s", rules)
	}
	return nil
}
