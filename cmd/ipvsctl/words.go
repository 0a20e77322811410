package main

import (
	"fmt"
	"strconv"
	"time"
)

// span prints a number of seconds with two units: "0.5s", "12s", "5m12s",
// "3h5m", "4d3h".
func span(seconds float64) string {
	if seconds < 9.95 {
		return strconv.FormatFloat(max(seconds, 0), 'f', 1, 64) + "s"
	}
	s := int64(seconds + 0.5)
	units := []struct {
		name string
		size int64
	}{{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}}
	for i, u := range units[:len(units)-1] {
		if s < u.size {
			continue
		}
		text := fmt.Sprintf("%d%s", s/u.size, u.name)
		if rest := s % u.size / units[i+1].size; rest > 0 {
			text += fmt.Sprintf("%d%s", rest, units[i+1].name)
		}
		return text
	}
	return fmt.Sprintf("%ds", s)
}

// wholeSpan is span of what is known in whole seconds: "4s".
func wholeSpan(seconds int) string {
	if seconds < 10 {
		return strconv.Itoa(seconds) + "s"
	}
	return span(float64(seconds))
}

// latency prints how long a probe took: "0.31ms", "12ms", "1.5s".
func latency(seconds float64) string {
	ms := seconds * 1000
	switch {
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 2, 64) + "ms"
	case ms < 1000:
		return strconv.FormatFloat(ms, 'f', 0, 64) + "ms"
	}
	return strconv.FormatFloat(seconds, 'f', 1, 64) + "s"
}

// since prints the time from t to now, by lbd's clock.
func since(now, t time.Time) string { return span(now.Sub(t).Seconds()) + " ago" }

// plural prints "1 operation", "2 operations".
func plural[N int | uint64](n N, what string) string {
	return pluralOf(n, what, what+"s")
}

func pluralOf[N int | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
