package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// warmUp is from the start of a contender until it is measured: all first checks
// are made, and each has come to its own phase.
const warmUp = 5 * time.Second

// The contenders, and what is measured of them: processor time a check, in
// microseconds.
const (
	lbdName, keepalivedName = "lbd", "keepalived"
	perCheck                = "per check"
)

// contender is a program that checks the real servers.
type contender struct {
	name string
	// start starts it and returns the number of its process.
	start func() (pid int, err error)
	stop  func() error
}

// compare has lbd and keepalived check the same real servers in turns, each
// started afresh. Who begins changes from round to round.
func (o options) compare(ctx context.Context, t netnstest.TB, stdout io.Writer) (*bench.Samples, error) {
	l, err := newLab(t, o)
	if err != nil {
		return nil, err
	}
	if err := l.countSYNs(); err != nil {
		return nil, err
	}
	own := contender{lbdName, func() (int, error) { err := l.lbd.Start(); return l.lbd.PID(), err }, l.lbd.Stop}
	turns := []contender{own, l.keepalived(t, o)}
	s := new(bench.Samples)
	for range o.rounds {
		for _, c := range turns {
			r, err := l.turn(ctx, o, c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			each := r.cpu / time.Duration(r.syns)
			fmt.Fprintf(stdout, "%-10s %6d checks in %v, %v of processor each\n",
				c.name, r.syns, r.elapsed.Round(time.Millisecond), each.Round(time.Microsecond))
			s.Add(perCheck, c.name, float64(each)/float64(time.Microsecond))
		}
		turns[0], turns[1] = turns[1], turns[0]
	}
	return s, nil
}

// reading is what a contender has done: until a moment, or between two.
type reading struct {
	elapsed time.Duration
	// syns are the connections that it began, one a check, cpu the processor time
	// of all its processes.
	syns int
	cpu  time.Duration
}

// turn runs a contender and returns what it did in the time of the measurement.
func (l *lab) turn(ctx context.Context, o options, c contender) (reading, error) {
	pid, err := c.start()
	if err != nil {
		return reading{}, err
	}
	if err := sleep(ctx, warmUp); err != nil {
		return reading{}, err
	}
	begin := time.Now()
	before, err := l.read(pid, begin)
	if err != nil {
		return reading{}, err
	}
	if err := sleep(ctx, o.time); err != nil {
		return reading{}, err
	}
	r, err := l.read(pid, begin)
	if err != nil {
		return reading{}, err
	}
	if err := c.stop(); err != nil {
		return reading{}, err
	}
	r.elapsed, r.syns, r.cpu = r.elapsed-before.elapsed, r.syns-before.syns, r.cpu-before.cpu
	// A check costs less where more are made: only like is compared with like.
	want := float64(o.targets) * float64(r.elapsed) / float64(o.interval)
	if n := float64(r.syns); n < 0.85*want || n > 1.15*want {
		return reading{}, fmt.Errorf("%d checks in %v, want about %.0f", r.syns, r.elapsed, want)
	}
	return r, nil
}

// read reads what the contender has done until now.
func (l *lab) read(pid int, begin time.Time) (r reading, err error) {
	// First, since this takes longest, and the same time before and after.
	if r.syns, err = l.syns(); err != nil {
		return r, err
	}
	r.elapsed = time.Since(begin)
	r.cpu, err = familyCPU("/proc", pid)
	return r, err
}

// comparison are the figures with their bars.
func comparison(s *bench.Samples) []bench.Result {
	return []bench.Result{
		{Name: "cpu_vs_keepalived", Value: s.Ratio(perCheck, lbdName, keepalivedName), Bar: bench.AtMost(1)},
		{Name: "health_us_per_check", Value: s.Median(perCheck, lbdName)},
		{Name: "keepalived_us_per_check", Value: s.Median(perCheck, keepalivedName)},
	}
}
