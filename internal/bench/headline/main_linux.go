// Command headline shows what the choice of a scheduler is worth: the same
// requests to three servers of unequal speed, by each of a few schedulers of lbd.
//
//	headline -engine userspace|kernel [-slow FACTOR] [-requests N] [-clients N] [-bin FOLDER]
//
// Each real server has a pool of 32 workers. Their service times are 30 ms, 60 ms
// give or take 20, and 100 ms give or take 50, times FACTOR. All requests that
// the clients have at once wait in the servers' queues; each is a connection of
// its own. Each scheduler has namespaces of its own, so that none counts what
// another left.
//
// The last lines are "RESULT name value": the throughput and the 95th percentile
// of lc in units of those of rr. The exit status is 1 when one misses its bar.
// Needs root, and for -engine kernel a kernel with IPVS.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/internal/bench/rig"
)

func main() { bench.Main(run) }

const program = "bench-headline"

// options are the flags.
type options struct {
	engine                  string
	slow, requests, clients int
	bin                     string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, status := parseFlags(args, stderr)
	if status != 0 {
		return status
	}
	fmt.Fprintf(stdout, "%d requests, %d clients, %d workers a server; engine %s\n", o.requests, o.clients, workers, o.engine)
	fmt.Fprintf(stdout, "%-14s %8s %10s   %s\n", "scheduler", "QPS", "p95", "share")
	outcomes := make(map[string]*rig.Outcome)
	for _, s := range schedulers() {
		out, err := o.play(ctx, s)
		if err != nil {
			fmt.Fprintf(stderr, "%s: %s: %v\n", program, s.label, err)
			return 1
		}
		outcomes[s.label] = out
		fmt.Fprintf(stdout, "%-14s %8.0f %10v   %s\n", s.label, out.Rate(), out.P95.Round(time.Millisecond), share(out))
	}
	if !bench.Print(stdout, stderr, program, o.results(outcomes[labelRR], outcomes[labelLC])) {
		return 1
	}
	return 0
}

func parseFlags(args []string, stderr io.Writer) (o options, status int) {
	fs := new(flag.FlagSet)
	fs.StringVar(&o.engine, "engine", "userspace", "`engine` of lbd: userspace or kernel")
	fs.IntVar(&o.slow, "slow", 1, "`factor` of the service times")
	fs.IntVar(&o.requests, "requests", 30000, "`number` of requests to each scheduler")
	fs.IntVar(&o.clients, "clients", 200, "`number` of requests at once")
	bench.BinFlag(fs, &o.bin)
	status = bench.Parse(fs, args, stderr, program, func() error {
		switch {
		case o.engine != "userspace" && o.engine != "kernel":
			return fmt.Errorf("unknown engine %q", o.engine)
		case o.slow < 1 || o.slow > 100 || o.requests < 1 || o.requests > 1e6 || o.clients < 1 || o.clients > 1000:
			return bench.ErrRange
		}
		return nil
	})
	return o, status
}

// results compares least connection with round robin: published figures are 1.50
// times its throughput, and a 95th percentile that is lower by 48 %.
func (o options) results(rr, lc *rig.Outcome) []bench.Result {
	return []bench.Result{
		{Name: "throughput_lc_vs_rr_" + o.engine, Value: lc.Rate() / rr.Rate(), Bar: bench.AtLeast(1.5)},
		{Name: "p95_lc_vs_rr_" + o.engine, Value: lc.P95.Seconds() / rr.P95.Seconds(), Bar: bench.AtMost(0.52)},
	}
}
