package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/flow"
)

// findings are what a run found.
type findings struct {
	outcome *rig.Outcome
	// complaint is what the client says of its failures.
	complaint error
	// counted are the connections of lbd's statistics, active and inactive those
	// that it counts at the end. apart is how far the inactive ones are from
	// conntrack's.
	counted, active, inactive, apart uint64
	memory                           memory
	filesBefore, files               int
	goroutinesBefore, goroutines     int
	// slowest is the longest answer of lbd's API.
	slowest  time.Duration
	warnings []string
}

const (
	// memoryBar and memorySlack, in kB, are how much the memory may differ by
	// chance: the collector lets the heap grow to twice of what lives, and lbd's
	// is small.
	memoryBar   = 1.2
	memorySlack = 8192
	// fewMore are descriptors or goroutines of what is going on just then, such as
	// a check and an answer of the API.
	fewMore = 8
	// settleTime is how long counts may take to agree: connections expire
	// meanwhile, and what one side sees of that comes later than the other.
	settleTime = 30 * time.Second
)

func (f *findings) results() []bench.Result {
	none := bench.AtMost(0)
	return []bench.Result{
		{Name: "soak_connections", Value: float64(f.outcome.Done)},
		{Name: "soak_rate", Value: f.outcome.Rate()},
		{Name: "soak_failed", Value: float64(f.outcome.Failed), Bar: none},
		{Name: "soak_uncounted", Value: distance(f.counted, f.outcome.Done), Bar: none},
		{Name: "soak_active", Value: float64(f.active), Bar: none},
		{Name: "soak_inactive", Value: float64(f.apart), Bar: none},
		{Name: "soak_memory", Value: f.memory.growth(), Bar: bench.AtMost(memoryBar)},
		{Name: "soak_files", Value: float64(f.files - f.filesBefore), Bar: bench.AtMost(fewMore)},
		{Name: "soak_goroutines", Value: float64(f.goroutines - f.goroutinesBefore), Bar: bench.AtMost(fewMore)},
	}
}

// distance is how far two counts are apart.
func distance(a, b uint64) float64 { return float64(max(a, b) - min(a, b)) }

// compare waits until what lbd counts agrees with conntrack, and notes the
// distance that was left.
func (s *soak) compare(ctx context.Context, f *findings) error {
	// All real servers are back, so that lbd has counts of all connections that
	// there are.
	if err := s.churn.all(); err != nil {
		return err
	}
	if err := s.lbd.Reload(); err != nil {
		return err
	}
	table, err := conntrack.OpenTable(s.rig.Balancer.FD())
	if err != nil {
		return err
	}
	defer table.Close()
	for deadline := time.Now().Add(settleTime); ; time.Sleep(100 * time.Millisecond) {
		want, err := tracked(ctx, table)
		if err != nil {
			return err
		}
		services, err := s.client.Table(ctx)
		if err != nil {
			return err
		}
		f.counted, f.active, f.inactive, f.apart = 0, 0, 0, 0
		for _, svc := range services {
			f.counted += svc.Stats.Connections
			for _, d := range svc.RealServers {
				at, err := netip.ParseAddrPort(d.Address)
				if err != nil {
					return fmt.Errorf("real server %q: %w", d.Address, err)
				}
				f.active += uint64(d.Active)
				f.inactive += uint64(d.Inactive)
				f.apart += uint64(distance(uint64(d.Inactive), want[at]))
				delete(want, at)
			}
		}
		for _, n := range want {
			f.apart += n
		}
		if f.active == 0 && f.apart == 0 && f.counted == f.outcome.Done || time.Now().After(deadline) {
			break
		}
	}
	status, err := s.client.Status(ctx)
	f.warnings = status.Warnings
	return err
}

// tracked counts conntrack's connections by real server.
func tracked(ctx context.Context, t *conntrack.Table) (map[netip.AddrPort]uint64, error) {
	n := make(map[netip.AddrPort]uint64)
	// An entry may come twice. Its id does not tell: among 100,000 entries, two
	// have one of 32 bits by chance.
	seen := make(map[flow.Tuple]bool)
	for try := 0; ; try++ {
		clear(n)
		clear(seen)
		err := t.Dump(ctx, conntrack.Filter{Status: conntrack.StatusDstNAT, StatusMask: conntrack.StatusDstNAT}, func(ev *conntrack.Event) {
			if !seen[ev.Orig] {
				seen[ev.Orig] = true
				n[netip.AddrPortFrom(ev.Reply.Src(), ev.Reply.SrcPort)]++
			}
		})
		if !errors.Is(err, conntrack.ErrInterrupted) || try == 5 {
			return n, err
		}
	}
}
