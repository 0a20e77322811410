// Command soak sends many connections through lbd's userspace engine while what
// it balances keeps changing, and sees that none is lost, that all are counted,
// and that lbd does not grow.
//
//	soak [-connections N] [-rate-floor N] [-seed N] [-bin FOLDER]
//
// The network is a client, a balancer and four real servers in namespaces
// (internal/bench/rig); the load client opens a connection after the other, 64 at
// once: connect, ask, read the answer, close. When each tuple of the client has
// been used once, so that lbd holds as many connections as it ever will, changes
// begin: in an order that the seed decides, real servers fail their checks and recover, and the file is
// changed and reloaded: other weights, real servers that leave with a drain, and
// come back. The checks have a port of their own, so that a server whose checks
// fail serves on: whatever connection fails is lbd's fault.
//
// The client has a tenth as many tuples as there are connections, so that each
// comes back about ten times, after its last use has ended: conntrack remembers a
// connection for two minutes, and has room for 262,144 on a host of the size of a
// build machine. That limit is the host's, and is read-only in a namespace.
//
// The last lines are "RESULT name value", and the exit status is 1 when one misses
// its bar:
//
//	soak_failed      connections that failed
//	soak_uncounted   connections that lbd's statistics have too few or too many
//	soak_active      active connections that are counted when all have ended
//	soak_inactive    difference of the inactive ones to conntrack's table, summed
//	                 over the real servers
//	soak_memory      most resident memory after the first fifth, less 8 MiB for
//	                 chance, in units of the most until then, which is with
//	                 every tuple in the table
//	soak_files, soak_goroutines
//	                 descriptors and goroutines at the end beyond those at the
//	                 start
//
// Needs root, and lbd, bench-client and bench-server.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/internal/e2e"
)

func main() { bench.Main(run) }

const program = "soak"

// options are the flags.
type options struct {
	connections int
	// floor is the slowest rate, connections a second, at which the run is not
	// given up.
	floor int
	seed  uint64
	bin   string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, status := parseFlags(args, stderr)
	if status != 0 {
		return status
	}
	var found *findings
	err := e2e.WithHost(func(h *e2e.Host) (err error) {
		found, err = o.play(ctx, h, stdout)
		return err
	})
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", program, err)
		return 1
	}
	if found.complaint != nil {
		fmt.Fprintf(stderr, "%s: %v\n", program, found.complaint)
	}
	if !bench.Print(stdout, stderr, program, found.results()) {
		return 1
	}
	return 0
}

func parseFlags(args []string, stderr io.Writer) (o options, status int) {
	fs := new(flag.FlagSet)
	fs.IntVar(&o.connections, "connections", 1_000_000, "`number` of connections")
	fs.IntVar(&o.floor, "rate-floor", 2000, "connections a second below which the run is given up")
	fs.Uint64Var(&o.seed, "seed", 1, "what decides the order of the changes")
	bench.BinFlag(fs, &o.bin)
	status = bench.Parse(fs, args, stderr, program, func() error {
		if o.connections < 1000 || o.connections > 2_000_000 || o.floor < 1 || o.connections/o.floor > maxSeconds {
			return bench.ErrRange
		}
		return nil
	})
	return o, status
}

// maxSeconds is the longest time that the load client takes.
const maxSeconds = 600
