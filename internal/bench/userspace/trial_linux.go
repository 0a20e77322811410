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
	"time"

	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/e2e"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// trial is a run of the benchmark.
type trial struct {
	options
	out     io.Writer
	dir     string
	sites   []*site
	samples bench.Samples
}

// site is a contender at work on a network of its own.
type site struct {
	contender
	rig *rig.Rig
	*running
}

// play measures all.
func (t *trial) play(ctx context.Context, h *e2e.Host) (err error) {
	if t.dir, err = os.MkdirTemp("", "lbd-bench-"); err != nil {
		return err
	}
	h.Cleanup(func() { os.RemoveAll(t.dir) })
	fmt.Fprintf(t.out, "%d rounds of %v each, requests of %v, Linux %s, %d processors\n", t.rounds, t.time, t.time*requestTurns/turns, release(), runtime.NumCPU())
	loadModules()
	for _, name := range t.contenders {
		if err := t.open(ctx, h, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for round := range t.rounds {
		for _, m := range metrics(t.time) {
			if !slices.Contains(t.metrics, m.name) {
				continue
			}
			if err := t.round(ctx, m, round); err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, m.name, err)
			}
		}
	}
	for _, s := range t.sites {
		if err := errors.Join(s.wake(), s.stop()); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// open builds the network of a contender, starts it, and has every tuple used
// once: the tuples of what is measured then are all known to conntrack, as on a
// balancer that has run for a while.
func (t *trial) open(ctx context.Context, h *e2e.Host, name string) error {
	s := &site{contender: t.contender(name), rig: rig.New(h, rig.ProgramsIn(t.bin), servers)}
	for i := range servers {
		if err := s.rig.Serve(ctx, i, rig.Work{Workers: 1}); err != nil {
			return err
		}
	}
	commonSysctls(s.rig.Balancer)
	var err error
	if s.running, err = s.start(ctx, h, s.rig); err != nil {
		return err
	}
	t.sites = append(t.sites, s)
	load := request(parallel, threads)
	// The time is a bound: an emulated machine makes some hundred a second.
	load.Count, load.Time, load.To = sources*sourcePorts, 5*time.Minute, s.to(rig.AnswerPort)
	if _, err := s.rig.Run(ctx, load); err != nil {
		return fmt.Errorf("%w\n%s", err, s.log())
	}
	return nil
}

// loadModules loads what lbd's rules use, where it is a module: one by one,
// emulation takes half a minute for them. Those that are no modules here, or are
// absent, do not matter.
func loadModules() {
	for _, module := range []string{
		"nf_conntrack", "nf_conntrack_netlink", "nfnetlink_queue", "nfnetlink_cttimeout", "nf_tables", "nf_nat",
		"nft_ct", "nft_chain_nat", "nft_nat", "nft_numgen", "nft_queue", "nft_compat", "nft_reject_ipv4",
		"nft_dup_ipv4", "xt_NFQUEUE",
	} {
		exec.Command("modprobe", module).Run()
	}
}

// commonSysctls sets what all contenders have in common. Accounting, which no
// contender needs and many hosts have, costs all the same. Events are made of none
// but the connections that rules choose, as lbd's do: by default the kernel makes
// some of each connection as soon as a program in any network namespace listens to
// events, and the limit would pay for that program.
func commonSysctls(balancer *netnstest.NS) {
	balancer.SetSysctl("net.netfilter.nf_conntrack_acct", "1")
	balancer.SetSysctl("net.netfilter.nf_conntrack_events", "0")
}

// round measures each contender in short turns, and adds what its turns make
// together. Another one begins each time: what follows what must not matter.
func (t *trial) round(ctx context.Context, m metric, round int) error {
	outcomes := make([]rig.Outcome, len(t.sites))
	for turn := range m.turns {
		for i := range t.sites {
			i = (round + turn + i) % len(t.sites)
			if err := t.turn(ctx, m, t.sites[i], &outcomes[i]); err != nil {
				return fmt.Errorf("%s: %w", t.sites[i].name, err)
			}
		}
	}
	fmt.Fprintf(t.out, "round %d %s:", round+1, m.name)
	for i, s := range t.sites {
		if s.name != nameRouting {
			if err := m.check(&outcomes[i]); err != nil {
				return fmt.Errorf("%s: %w\n%s", s.name, err, s.log())
			}
		}
		fmt.Fprintf(t.out, "  %s", s.name)
		for _, f := range m.figures {
			v := f.of(&outcomes[i])
			t.samples.Add(f.name, s.name, v)
			fmt.Fprintf(t.out, " %s %s", number(v), f.unit)
		}
	}
	fmt.Fprintln(t.out)
	return nil
}

// turn measures a contender once. For the kernel alone all programs rest: it would
// pay for what they do then. A program is measured while the others are awake:
// after a rest it makes up for what it had to do meanwhile, and what it does each
// second, or each few, would be in all its turns of a quarter second.
func (t *trial) turn(ctx context.Context, m metric, s *site, sum *rig.Outcome) error {
	for _, other := range t.sites {
		change := other.wake
		if bare(s.name) {
			change = other.rest
		}
		if err := change(); err != nil {
			return fmt.Errorf("%s: %w", other.name, err)
		}
	}
	m.load.To = s.to(m.port)
	o, err := s.rig.Run(ctx, m.load)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.log())
	}
	sum.Add(o)
	return nil
}
