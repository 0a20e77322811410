// Command health measures what the checks of many real servers cost lbd, and how
// late it finds the dead ones while it makes them all.
//
//	health [-type tcp|http] [-targets N] [-interval D] [-timeout D] [-fall N] [-time D] [-deaths N] [-bin FOLDER]
//	health -keepalived [-targets N] [-interval D] [-timeout D] [-time D] [-rounds N] [-bin FOLDER]
//
// lbd runs in a namespace, its real servers are the addresses of another one, and
// each is checked by a connection, or by a request over one. While that goes on, real servers
// die at random, some each tenth of a second: packets to them are dropped from
// then on, the slowest of all deaths to find. Two moments are read from lbd's log:
// when a check found it, and when lbd, on its userspace engine, had it out of the
// table.
//
// The last lines are "RESULT name value", and the exit status is 1 when one misses
// its bar:
//
//	checks_per_second    checks that ended, by lbd's own count
//	detect_p99_vs_bound  time from a death until a check found it, the 99th of
//	                     100, in units of fall x interval + timeout + 100 ms
//	health_table_p99     the same until it was out of the table, in seconds
//	health_cpu           processors that lbd kept busy
//	health_memory_mib    its most resident memory
//	health_false         real servers that were called down and were not dead
//
// With -keepalived, lbd and keepalived check the same few real servers over tcp, in
// turns, on the kernel's IPVS, without which keepalived has no checker. All of their
// threads and processes count, and so does all that they do besides:
//
//	cpu_vs_keepalived        lbd's processor time a check in units of keepalived's
//	health_us_per_check      its processor time a check, in microseconds
//	keepalived_us_per_check  keepalived's
//
// Needs root, nft and lbd; with -keepalived, keepalived and a kernel with IPVS.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/internal/e2e"
)

func main() { bench.Main(run) }

const program = "bench-health"

// options are the flags.
type options struct {
	// kind is the type of the checks.
	kind              string
	targets           int
	interval, timeout time.Duration
	fall              int
	// time is how long is measured; deaths is how many die a second of it.
	time   time.Duration
	deaths int
	bin    string
	// keepalived says that it is compared with lbd, rounds how often.
	keepalived bool
	rounds     int
}

// grace is how late a death may be found beyond what the checks promise: the
// kernel and the program that measures need time too.
const grace = 100 * time.Millisecond

// bound is the latest that a death is found.
func (o options) bound() time.Duration {
	return time.Duration(o.fall)*o.interval + o.timeout + grace
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, status := parseFlags(args, stderr)
	if status != 0 {
		return status
	}
	var results []bench.Result
	err := e2e.WithHost(func(h *e2e.Host) error {
		if o.keepalived {
			s, err := o.compare(ctx, h, stdout)
			if err == nil {
				results = comparison(s)
			}
			return err
		}
		f, err := o.play(ctx, h)
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, f)
		results = f.results(o)
		return nil
	})
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", program, err)
		return 1
	}
	if !bench.Print(stdout, stderr, program, results) {
		return 1
	}
	return 0
}

func parseFlags(args []string, stderr io.Writer) (o options, status int) {
	fs := new(flag.FlagSet)
	fs.StringVar(&o.kind, "type", "tcp", "`type` of the checks: tcp or http")
	fs.IntVar(&o.targets, "targets", 10_000, "`number` of real servers")
	fs.DurationVar(&o.interval, "interval", time.Second, "time between two checks of one")
	fs.DurationVar(&o.timeout, "timeout", 500*time.Millisecond, "time-out of a check")
	fs.IntVar(&o.fall, "fall", 2, "`number` of failed checks that make one down")
	fs.DurationVar(&o.time, "time", 20*time.Second, "how long to measure")
	fs.IntVar(&o.deaths, "deaths", 20, "real servers that die each second, a multiple of 10")
	fs.BoolVar(&o.keepalived, "keepalived", false, "compare the processor time a check with keepalived's")
	fs.IntVar(&o.rounds, "rounds", 3, "turns of each with -keepalived")
	bench.BinFlag(fs, &o.bin)
	status = bench.Parse(fs, args, stderr, program, func() error {
		switch {
		case o.kind != "tcp" && o.kind != "http":
			return fmt.Errorf("-type %s is neither tcp nor http", o.kind)
		case o.keepalived && o.kind != "tcp":
			return fmt.Errorf("-keepalived compares checks of type tcp, not -type %s", o.kind)
		case o.rounds < 1 || o.rounds > 100,
			o.targets < 1 || o.targets > maxTargets, o.fall < 1 || o.fall > 10,
			o.interval < 10*time.Millisecond || o.interval > time.Minute, o.timeout < time.Millisecond || o.timeout > o.interval,
			o.time < time.Second || o.time > 10*time.Minute, o.deaths < 10 || o.deaths%ticks != 0,
			!o.keepalived && o.deaths*int(o.time/time.Second) > o.targets:
			return bench.ErrRange
		}
		return nil
	})
	return o, status
}
