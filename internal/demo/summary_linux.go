package main

import (
	"fmt"
	"io"
)

// result is one line of the summary.
type result struct {
	passed bool
	// what was promised, and figure is what was seen.
	what, figure string
}

// summary collects results.
type summary struct {
	results []result
	// broken is why the demo could not go on; nil if it came to its end.
	broken error
}

func (s *summary) check(passed bool, what, format string, args ...any) {
	s.results = append(s.results, result{passed, what, fmt.Sprintf(format, args...)})
}

// print writes a line a result and a last one that counts them, and says
// whether all is well. A demo that checked nothing is not.
func (s *summary) print(w io.Writer) bool {
	fmt.Fprintln(w)
	passed := 0
	for _, r := range s.results {
		word := "FAIL"
		if r.passed {
			word = "PASS"
			passed++
		}
		fmt.Fprintf(w, "%s  %s: %s\n", word, r.what, r.figure)
	}
	if s.broken != nil {
		fmt.Fprintf(w, "FAIL  the demo came to its end: %v\n", s.broken)
	}
	fmt.Fprintf(w, "demo: %d of %d passed\n", passed, len(s.results)+btoi(s.broken != nil))
	return s.broken == nil && passed > 0 && passed == len(s.results)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
