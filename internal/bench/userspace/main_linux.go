// Command userspace measures what lbd's userspace engine costs, beside what else
// can balance on the same network: plain NAT by nftables, which is the limit for
// whatever uses the kernel's NAT, HAProxy, nginx, and the kernel's IPVS.
//
//	userspace [-rounds N] [-time DURATION] [-contenders LIST] [-metrics LIST] [-bin FOLDER]
//
// Each contender has a client, a balancer and three real servers of its own
// (internal/bench/rig), with the same sysctls. All are started in the beginning
// and are measured in short turns. While the kernel alone is measured, all programs
// rest; otherwise they are awake, so that each does in its own turns as much of its
// periodic work as it does at any time. A round is some turns of each; the next one
// begins with another contender.
//
// What is measured, a ratio being the median of the rounds' ratios:
//
//	requests  64 clients at once; connect, ask, read the answer, close:
//	          connections a second, and processor time a connection
//	latency   one client: the median time of such a connection
//	down, up  three connections, as fast as they can
//
// The processor time is that of the whole machine, from /proc/stat: that of the
// client and the servers too, since what a balancer does in the kernel is
// accounted to whoever runs at that moment. "routing" is the load to one server
// without any balancer; what a contender takes beyond it is its own share.
//
// The last lines are "RESULT name value". The exit status is 1 when a figure
// misses its bar. Needs root, nft and conntrack, and the programs of the
// contenders.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/internal/e2e"
)

func main() { bench.Main(run) }

// options are the flags.
type options struct {
	rounds              int
	time                time.Duration
	contenders, metrics []string
	bin                 string
}

const program = "bench-userspace"

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, status := parseFlags(args, stderr)
	if status != 0 {
		return status
	}
	t := &trial{options: o, out: stdout}
	if err := e2e.WithHost(func(h *e2e.Host) error { return t.play(ctx, h) }); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", program, err)
		return 1
	}
	t.table()
	if !bench.Print(stdout, stderr, program, t.results()) {
		return 1
	}
	return 0
}

func parseFlags(args []string, stderr io.Writer) (o options, status int) {
	fs := new(flag.FlagSet)
	fs.IntVar(&o.rounds, "rounds", 7, "`number` of rounds")
	fs.DurationVar(&o.time, "time", 2*time.Second, "measured `time` of each contender, metric and round, in short turns; for requests four times that")
	contenders := fs.String("contenders", strings.Join(defaultContenders, ","),
		"`list` of "+strings.Join(contenderNames(), ", "))
	metrics := fs.String("metrics", strings.Join(metricNames(), ","), "`list` of what to measure")
	bench.BinFlag(fs, &o.bin)
	status = bench.Parse(fs, args, stderr, program, func() error {
		o.contenders, o.metrics = strings.Split(*contenders, ","), strings.Split(*metrics, ",")
		for _, c := range o.contenders {
			if !slices.Contains(contenderNames(), c) {
				return fmt.Errorf("unknown contender %q", c)
			}
		}
		for _, m := range o.metrics {
			if !slices.Contains(metricNames(), m) {
				return fmt.Errorf("unknown metric %q", m)
			}
		}
		if o.rounds < 1 || o.time < 10*time.Millisecond || o.time > 5*time.Minute {
			return bench.ErrRange
		}
		return nil
	})
	return o, status
}
