package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// times are the times of each contender, by name.
type times map[string][]time.Duration

func (t times) add(name string, d time.Duration) { t[name] = append(t[name], d) }

// median returns the middle, or the mean of the two middle ones.
func (t times) median(name string) time.Duration {
	d := slices.Sorted(slices.Values(t[name]))
	if len(d) == 0 {
		return 0
	}
	return (d[(len(d)-1)/2] + d[len(d)/2]) / 2
}

// ratio returns the median of a in units of that of b.
func (t times) ratio(a, b string) float64 {
	return t.median(a).Seconds() / t.median(b).Seconds()
}

// result is a figure with its bar.
type result struct {
	name  string
	value float64
	bar   bar
}

// bar is what a figure must reach, with the words for it. The zero value bars
// nothing.
type bar struct {
	ok  func(float64) bool
	say string
}

func atLeast(v float64) bar {
	return bar{func(x float64) bool { return x >= v }, fmt.Sprintf("at least %g", v)}
}

func atMost(v float64) bar {
	return bar{func(x float64) bool { return x <= v }, fmt.Sprintf("at most %g", v)}
}

// printResults prints a RESULT line each, tells on stderr which missed their
// bars, and says whether none did. What is not a number misses.
func printResults(stdout, stderr io.Writer, results []result) bool {
	ok := true
	for _, r := range results {
		if r.bar.ok != nil && !r.bar.ok(r.value) {
			ok = false
			fmt.Fprintf(stderr, "bench-apply: %s is %.4g, want %s\n", r.name, r.value, r.bar.say)
		}
	}
	for _, r := range results {
		fmt.Fprintf(stdout, "RESULT %s %.4g\n", r.name, r.value)
	}
	return ok
}
