package bench

import (
	"math"
	"slices"
)

// Samples are measured values by what was measured and of whom. Each round adds
// one for each contender. The zero value is empty and ready to use.
type Samples struct{ of map[sample][]float64 }

type sample struct{ metric, contender string }

// Add adds the value of the next round.
func (s *Samples) Add(metric, contender string, v float64) {
	if s.of == nil {
		s.of = make(map[sample][]float64)
	}
	k := sample{metric, contender}
	s.of[k] = append(s.of[k], v)
}

// Last returns the value added last, NaN if there is none.
func (s *Samples) Last(metric, contender string) float64 {
	v := s.of[sample{metric, contender}]
	if len(v) == 0 {
		return math.NaN()
	}
	return v[len(v)-1]
}

// Median returns the middle of the rounds, or the mean of the two middle ones.
// It is NaN where there are none.
func (s *Samples) Median(metric, contender string) float64 {
	return median(s.of[sample{metric, contender}])
}

// Ratio returns the median of what each round says of a in units of b. What
// disturbs a whole round then hits both sides alike. It is NaN where there are
// no rounds, or not as many of both.
func (s *Samples) Ratio(metric, a, b string) float64 {
	return s.combine(metric, []string{a, b}, func(v []float64) float64 { return v[0] / v[1] })
}

// RatioAbove is Ratio of what a and b have above the floor, a third contender.
func (s *Samples) RatioAbove(metric, floor, a, b string) float64 {
	return s.combine(metric, []string{a, b, floor}, func(v []float64) float64 {
		return (v[0] - v[2]) / (v[1] - v[2])
	})
}

// combine returns the median of what f makes of the contenders' values of each
// round.
func (s *Samples) combine(metric string, contenders []string, f func([]float64) float64) float64 {
	rounds := len(s.of[sample{metric, contenders[0]}])
	values := make([]float64, len(contenders))
	out := make([]float64, 0, rounds)
	for r := range rounds {
		for i, c := range contenders {
			v := s.of[sample{metric, c}]
			if len(v) != rounds {
				return math.NaN()
			}
			values[i] = v[r]
		}
		out = append(out, f(values))
	}
	return median(out)
}

func median(v []float64) float64 {
	if len(v) == 0 || slices.ContainsFunc(v, math.IsNaN) {
		return math.NaN()
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
