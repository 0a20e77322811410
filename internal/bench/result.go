package bench

import (
	"fmt"
	"io"
)

// Result is a figure with its bar.
type Result struct {
	Name  string
	Value float64
	Bar   Bar
}

// Bar is what a figure must reach, with the words for it. The zero value bars
// nothing.
type Bar struct {
	ok  func(float64) bool
	say string
}

// AtLeast bars what is below v.
func AtLeast(v float64) Bar {
	return Bar{func(x float64) bool { return x >= v }, fmt.Sprintf("at least %g", v)}
}

// AtMost bars what is above v.
func AtMost(v float64) Bar {
	return Bar{func(x float64) bool { return x <= v }, fmt.Sprintf("at most %g", v)}
}

// Print prints a RESULT line each, tells on stderr, in the name of the program,
// which missed their bars, and says whether none did. What is not a number
// misses.
func Print(stdout, stderr io.Writer, program string, results []Result) bool {
	ok := true
	for _, r := range results {
		if r.Bar.ok != nil && !r.Bar.ok(r.Value) {
			ok = false
			fmt.Fprintf(stderr, "%s: %s is %.4g, want %s\n", program, r.Name, r.Value, r.Bar.say)
		}
	}
	for _, r := range results {
		fmt.Fprintf(stdout, "RESULT %s %.4g\n", r.Name, r.Value)
	}
	return ok
}
