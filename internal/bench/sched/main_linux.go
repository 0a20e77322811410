// Command sched measures what choosing a real server costs, beside plain scans.
//
//	sched [-rounds N] [-time DURATION] [-schedulers LIST] [-servers LIST]
//
// A table is in a steady state, four connections a server and weights from 1 to
// 10; each pick is followed by the end of an older connection, so that counts
// move and every pick finds others than the one before. A time is for both.
//
// Two scans choose beside lc, wlc, sed and nq, after it was seen that they choose
// the same: "list" follows the table's list and reads its servers, as the kernel
// does; "array" goes over the counts alone, packed, which no table with anything
// else to know could have.
//
// All take turns in each round. The time is that which the thread was running,
// so that other programs disturb little; a figure is the median of the rounds, a
// ratio that of the rounds' ratios. The last lines are "RESULT name value". The
// exit status is 1 when a figure misses its bar.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/sched"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// Contenders.
const (
	table = "table"
	list  = "list"
	array = "array"
)

// trial is a run of the benchmark.
type trial struct {
	rounds  int
	time    time.Duration
	sizes   []int
	samples bench.Samples
	// allocs is the most allocations a pick that any table made.
	allocs float64
}

const program = "bench-sched"

func run(args []string, stdout, stderr io.Writer) int {
	fs := new(flag.FlagSet)
	var t trial
	fs.IntVar(&t.rounds, "rounds", 9, "`number` of rounds")
	fs.DurationVar(&t.time, "time", 4*time.Millisecond, "`duration` of a measurement")
	names := fs.String("schedulers", "", "comma separated `list` of schedulers; all unless set")
	servers := fs.String("servers", "10,100,1000,10000", "comma separated `list` of numbers of servers")
	if status := bench.Parse(fs, args, stderr, program, func() error {
		for f := range strings.SplitSeq(*servers, ",") {
			n, err := strconv.Atoi(f)
			if err != nil || n < 1 || n > 1<<16 {
				return fmt.Errorf("%q is no number of servers from 1 to 65536", f)
			}
			t.sizes = append(t.sizes, n)
		}
		if t.rounds < 1 || t.time <= 0 {
			return bench.ErrRange
		}
		return nil
	}); status != 0 {
		return status
	}
	var chosen []string
	if *names != "" {
		chosen = strings.Split(*names, ",")
	} else {
		for _, i := range sched.Schedulers() {
			chosen = append(chosen, i.Name)
		}
	}
	// The thread's clock is read before and after, so stay on it.
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	fmt.Fprintf(stdout, "%-14s%-8s", "ns a pick", "")
	for _, n := range t.sizes {
		fmt.Fprintf(stdout, "%10d", n)
	}
	fmt.Fprintln(stdout)
	for _, name := range chosen {
		if err := t.scheduler(stdout, name); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", program, err)
			return 1
		}
	}
	var results []bench.Result
	if slices.Contains(chosen, "wlc") && slices.Contains(t.sizes, 1000) {
		m := metric("wlc", 1000)
		results = []bench.Result{
			{Name: "wlc_1000_speedup_vs_scan", Value: t.samples.Ratio(m, list, table), Bar: bench.AtLeast(10)},
			{Name: "wlc_1000_speedup_vs_array", Value: t.samples.Ratio(m, array, table)},
		}
	}
	results = append(results, bench.Result{Name: "allocs_per_pick", Value: t.allocs, Bar: bench.AtMost(0)})
	if !bench.Print(stdout, stderr, program, results) {
		return 1
	}
	return 0
}

func metric(name string, servers int) string { return fmt.Sprintf("%s/%d", name, servers) }

// scheduler measures one scheduler at every size and prints its lines.
func (t *trial) scheduler(out io.Writer, name string) error {
	contenders := []string{table}
	if scans(name) {
		contenders = append(contenders, list, array)
	}
	for _, n := range t.sizes {
		if err := t.measure(name, n, contenders); err != nil {
			return err
		}
	}
	for _, c := range contenders {
		fmt.Fprintf(out, "%-14s%-8s", name, c)
		for _, n := range t.sizes {
			fmt.Fprintf(out, "%10.1f", t.samples.Median(metric(name, n), c))
		}
		fmt.Fprintln(out)
	}
	return nil
}

// measure lets the contenders take turns at one size.
func (t *trial) measure(name string, servers int, contenders []string) error {
	loads := make([]*load, len(contenders))
	for i, c := range contenders {
		p, err := newPicker(name, c, servers)
		if err != nil {
			return err
		}
		loads[i] = newLoad(p, servers)
	}
	for range 3 * servers {
		first := loads[0].step()
		for i, l := range loads[1:] {
			if got := l.step(); got != first {
				return fmt.Errorf("%s with %d servers: %s chose server %d, %s %d",
					name, servers, table, first, contenders[i+1], got)
			}
		}
	}
	for range t.rounds {
		for i, l := range loads {
			ns, allocs := t.run(l)
			t.samples.Add(metric(name, servers), contenders[i], ns)
			if contenders[i] == table {
				// The runtime allocates now and then; a pick that does would always.
				for try := 0; allocs > 0 && try < 3; try++ {
					_, again := t.run(l)
					allocs = min(allocs, again)
				}
				t.allocs = max(t.allocs, allocs)
			}
		}
	}
	return nil
}

// run measures nanoseconds and allocations a step.
func (t *trial) run(l *load) (ns, allocs float64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	steps, spent := 0, time.Duration(0)
	for spent < t.time {
		start := cpu()
		for range 64 {
			l.step()
		}
		spent += cpu() - start
		steps += 64
	}
	runtime.ReadMemStats(&after)
	return float64(spent) / float64(steps), float64(after.Mallocs-before.Mallocs) / float64(steps)
}

// cpu returns how long this thread has been running.
func cpu() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err) // Linux has it since 2.6
	}
	return time.Duration(ts.Nano())
}
