package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTally(t *testing.T) {
	tests := []struct {
		name, in string
		want     tally
	}{
		{"nothing", "", tally{}},
		{"no tests", "testing: warning: no tests to run\nPASS\n", tally{}},
		{
			"one of each",
			"\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n" +
				"\x16=== RUN   TestB\n\x16--- FAIL: TestB (0.00s)\n" +
				"\x16=== RUN   TestC\n\x16--- SKIP: TestC (0.00s)\nFAIL\n",
			tally{passed: 1, failed: 1, skipped: []string{"TestC"}, running: []string{}},
		},
		{
			"subtests count only when skipped",
			"\x16=== RUN   TestA\n\x16=== RUN   TestA/x\n    \x16--- SKIP: TestA/x (0.00s)\n\x16--- PASS: TestA (0.00s)\n",
			tally{passed: 1, skipped: []string{"TestA/x"}, running: []string{}},
		},
		{
			"what tests print does not count",
			"\x16=== RUN   TestA\n--- PASS: TestFake (0.00s)\n--- SKIP: TestFake\n=== RUN   TestFake\n\x16--- PASS: TestA (0.00s)\n",
			tally{passed: 1, running: []string{}},
		},
		{
			"after output without a line end",
			"\x16=== RUN   TestA\nhalf a line\x16--- PASS: TestA (0.00s)\n",
			tally{passed: 1, running: []string{}},
		},
		{
			"a panic",
			"\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16=== RUN   TestB\npanic: boom\n\ngoroutine 1 [running]:\n",
			tally{passed: 1, failed: 1, running: []string{"TestB"}},
		},
		{"last line without an end", "\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)", tally{passed: 1, running: []string{}}},
		{"benchmarks", "BenchmarkX-2   \t     100\t  12.5 ns/op\nBenchmarkNoFigure\nBenchmarkY/sub 7 9 ns/op\n", tally{passed: 2}},
		{"cut marker", "\x16", tally{}},
		{"garbage", "\x16\xff\xfe\x00\n\x16--- PASS:\n\x16=== RUN\n", tally{}},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 7, 1 << 20} {
			var got tally
			for p := []byte(tt.in); len(p) > 0; {
				n := min(size, len(p))
				if _, err := got.Write(p[:n]); err != nil {
					t.Fatal(err)
				}
				p = p[n:]
			}
			got.finish()
			got.line = nil
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(tally{})); diff != "" {
				t.Errorf("%s, %d bytes a write: tally (-want +got):\n%s", tt.name, size, diff)
			}
		}
	}
}

func TestTallyBoundsLine(t *testing.T) {
	var got tally
	for range 100 {
		got.Write(make([]byte, 1000))
	}
	if len(got.line) > maxLine {
		t.Errorf("%d bytes kept of a line, want at most %d", len(got.line), maxLine)
	}
}
