// Command apply measures how fast a large table gets into the kernel, and its
// counts out: lbd beside ipvsadm and keepalived, in one run.
//
//	apply [-lbd FILE] [-rounds N] [-services N] [-servers N]
//
// Each programming has a fresh network namespace; the contenders take turns, and
// the ratios are of medians. Neither lbd nor keepalived has anything to check.
// The last lines are "RESULT name value". The exit status is 1 when a figure
// misses its bar. Needs root, a kernel with IPVS, ipvsadm and keepalived.
//
// lbd_apply is lbd's own path from a parsed configuration: decide, compare,
// write. lbd_start is the whole program, from its start with a file to parse
// until it says that it is ready. The times of ipvsadm and keepalived are those
// of the whole programs.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/e2e"
	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// trial is a run of the benchmark.
type trial struct {
	spec   spec
	rounds int
	lbd    string
	dir    string
	out    io.Writer
	host   *e2e.Host

	config *config.Config
	noop   int
	times  times
}

// The names of what is timed, and their order in the output.
const (
	timeRestore    = "ipvsadm_restore"
	timeKeepalived = "keepalived_start"
	timeApply      = "lbd_apply"
	timeStart      = "lbd_start"
	timeParse      = "lbd_parse"
	timeCounts     = "lbd_counts"
	timeList       = "ipvsadm_list"
)

func timeNames() []string {
	return []string{timeRestore, timeParse, timeApply, timeCounts, timeList, timeKeepalived, timeStart}
}

const program = "bench-apply"

func run(args []string, stdout, stderr io.Writer) int {
	fs := new(flag.FlagSet)
	b := &trial{out: stdout, times: make(times)}
	fs.StringVar(&b.lbd, "lbd", bench.Beside("lbd"), "`file` of lbd")
	fs.IntVar(&b.rounds, "rounds", 5, "`number` of rounds")
	fs.IntVar(&b.spec.services, "services", 1000, "`number` of services, at most 60000")
	fs.IntVar(&b.spec.servers, "servers", 20, "`number` of real servers of a service, at most 250")
	if status := bench.Parse(fs, args, stderr, program, func() error {
		if b.rounds < 1 || b.spec.services < 1 || b.spec.services > 60000 || b.spec.servers < 1 || b.spec.servers > 250 {
			return bench.ErrRange
		}
		return nil
	}); status != 0 {
		return status
	}
	err := e2e.WithHost(func(h *e2e.Host) error {
		b.host = h
		return b.play()
	})
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", program, err)
		return 1
	}
	if !bench.Print(stdout, stderr, program, b.results()) {
		return 1
	}
	return 0
}

// play measures.
func (b *trial) play() (err error) {
	if b.dir, err = os.MkdirTemp("", "lbd-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	fmt.Fprintf(b.out, "%d services x %d real servers, %d rounds, Linux %s, %d processors, no checks on either side\n",
		b.spec.services, b.spec.servers, b.rounds, release(), runtime.NumCPU())
	for round := range b.rounds {
		if err := b.round(); err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		fmt.Fprintf(b.out, "round %d:", round+1)
		for _, name := range timeNames() {
			list := b.times[name]
			fmt.Fprintf(b.out, " %s %.3f s", name, list[len(list)-1].Seconds())
		}
		fmt.Fprintln(b.out)
	}
	return nil
}

// round lets every contender program the table once. Those that a bar compares
// follow each other: what else the machine does changes from one to the next.
func (b *trial) round() error {
	if err := b.contend(timeRestore, b.restore); err != nil {
		return err
	}
	c, took, err := b.parse()
	if err != nil {
		return err
	}
	b.times.add(timeParse, took)
	b.config = c
	if err := b.contend(timeApply, b.applyAndMirror); err != nil {
		return err
	}
	b.config = nil
	if err := b.contend(timeKeepalived, b.keepalived); err != nil {
		return err
	}
	return b.contend(timeStart, b.start)
}

// applyAndMirror uses the table that lbd's path made for the mirror, too.
func (b *trial) applyAndMirror(ns *netnstest.NS) (time.Duration, error) {
	took, noop, err := b.apply(ns, b.config)
	if err != nil {
		return 0, err
	}
	b.noop += noop
	return took, b.mirror(ns)
}

// contend times one contender in a fresh namespace, verifies what it did, and
// takes it all away again before the next.
func (b *trial) contend(name string, f func(*netnstest.NS) (time.Duration, error)) error {
	runtime.GC()
	return e2e.WithHost(func(h *e2e.Host) error {
		ns := netnstest.New(h)
		took, err := f(ns)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		table, err := e2e.ReadTable(ns)
		if err == nil {
			err = b.spec.verify(table)
		}
		if err != nil {
			return fmt.Errorf("%s made another table: %w", name, err)
		}
		b.times.add(name, took)
		return flush(ns)
	})
}

// flush empties the table now, not in the background when the namespace goes.
func flush(ns *netnstest.NS) error {
	client, err := ipvs.Open(ipvs.WithNetNS(ns.FD()))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return client.Flush(ctx)
}

// results derives the figures from the medians and prints those.
func (b *trial) results() []bench.Result {
	for _, name := range timeNames() {
		fmt.Fprintf(b.out, "median %s %.3f s\n", name, b.times.median(name).Seconds())
	}
	return []bench.Result{
		{Name: "apply_speedup_vs_ipvsadm", Value: b.times.ratio(timeRestore, timeApply), Bar: bench.AtLeast(10)},
		{Name: "apply_speedup_vs_keepalived", Value: b.times.ratio(timeKeepalived, timeApply)},
		{Name: "noop_requests", Value: float64(b.noop), Bar: bench.AtMost(0)},
		{Name: "mirror_cost_vs_ipvsadm", Value: b.times.ratio(timeCounts, timeList), Bar: bench.AtMost(0.2)},
		{Name: "start_vs_keepalived", Value: b.times.ratio(timeStart, timeKeepalived), Bar: bench.AtMost(0.5)},
	}
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
