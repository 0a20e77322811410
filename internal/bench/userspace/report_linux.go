package main

import (
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/bench"
)

// bars are the figures that the engine is judged by: its own in units of
// another's.
var bars = []struct {
	name, figure, other string
	bar                 bench.Bar
}{
	{"cps_vs_limit", figureRate, nameLimit, bench.AtLeast(0.95)},
	{"cps_vs_haproxy", figureRate, nameHAProxy, bench.AtLeast(1.5)},
	{"cps_vs_nginx", figureRate, nameNginx, bench.AtLeast(1.4)},
	{"bulk_down_vs_limit", figureDown, nameLimit, bench.AtLeast(0.96)},
	{"bulk_up_vs_limit", figureUp, nameLimit, bench.AtLeast(0.96)},
	{"cpu_vs_limit", figureCPU, nameLimit, bench.AtMost(1.1)},
	{"p50_vs_haproxy", figureP50, nameHAProxy, bench.AtMost(1)},
	{"cps_vs_queue", figureRate, nameQueue, bench.Bar{}},
	{"cpu_vs_queue", figureCPU, nameQueue, bench.Bar{}},
	{"cps_vs_ipvs", figureRate, nameIPVS, bench.Bar{}},
	{"cpu_vs_ipvs", figureCPU, nameIPVS, bench.Bar{}},
	{"p50_vs_ipvs", figureP50, nameIPVS, bench.Bar{}},
}

// results are the figures of what was measured.
func (t *trial) results() []bench.Result {
	var out []bench.Result
	for _, b := range bars {
		if t.measured(b.figure, nameLBD, b.other) {
			out = append(out, bench.Result{Name: b.name, Value: t.samples.Ratio(b.figure, nameLBD, b.other), Bar: b.bar})
		}
	}
	return out
}

func (t *trial) measured(name string, contenders ...string) bool {
	for _, c := range contenders {
		if !slices.Contains(t.contenders, c) {
			return false
		}
	}
	for _, m := range metrics(t.time) {
		if slices.ContainsFunc(m.figures, func(f figure) bool { return f.name == name }) {
			return slices.Contains(t.metrics, m.name)
		}
	}
	return false
}

// table prints the medians, and each contender in units of the limit.
func (t *trial) table() {
	fmt.Fprintf(t.out, "\n%-10s", "median")
	var figures []figure
	for _, m := range metrics(t.time) {
		if slices.Contains(t.metrics, m.name) {
			figures = append(figures, m.figures...)
		}
	}
	for _, f := range figures {
		fmt.Fprintf(t.out, " %20s", f.name+" "+f.unit)
	}
	fmt.Fprintln(t.out)
	for _, c := range t.contenders {
		fmt.Fprintf(t.out, "%-10s", c)
		for _, f := range figures {
			cell := number(t.samples.Median(f.name, c))
			if t.measured(f.name, nameLimit) {
				cell += fmt.Sprintf(" (%.2f)", t.samples.Ratio(f.name, c, nameLimit))
			}
			fmt.Fprintf(t.out, " %20s", cell)
		}
		fmt.Fprintln(t.out)
	}
	if t.measured(figureCPU, nameRouting, nameLimit) {
		for _, c := range t.contenders {
			if c != nameRouting && c != nameLimit {
				fmt.Fprintf(t.out, "processor time beyond routing, %s vs %s: %.2f\n", c, nameLimit,
					t.samples.RatioAbove(figureCPU, nameRouting, c, nameLimit))
			}
		}
	}
	fmt.Fprintln(t.out)
}

// number prints four digits at least.
func number(v float64) string {
	if v >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
