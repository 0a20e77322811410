// Package retry says how long to wait before something that failed is tried again.
package retry

import "time"

// Delay returns the pause after a number of failures in a row: first after one, twice
// as long after each further one, most at most; less a part of up to a quarter, by
// random in [0, 1), so that not all try again at the same time.
func Delay(failures int, first, most time.Duration, random float64) time.Duration {
	d := first
	for ; failures > 1 && d < most; failures-- {
		d *= 2
	}
	d = min(d, most)
	return d - time.Duration(random*float64(d)/4)
}
