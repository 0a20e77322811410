package main

import (
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
