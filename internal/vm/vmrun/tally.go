package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// marker precedes the testing package's own lines under -test.v=test2json, so
// that they are told from what tests print (cmd/internal/test2json).
const marker = 0x16

// tally counts the tests of one test binary from its output.
type tally struct {
	// passed and failed count top-level tests, and benchmarks that gave a
	// figure.
	passed, failed int
	// skipped names what was skipped, subtests too.
	skipped []string
	// running are the top-level tests that began and did not end, in order.
	running []string

	line []byte
}

// Lines of the testing package.
var (
	testLine  = regexp.MustCompile(`^(=== RUN|--- PASS:|--- FAIL:|--- SKIP:|--- BENCH:)\s+(\S+)`)
	benchLine = regexp.MustCompile(`^(Benchmark\S*)\s+\d+\s+[0-9.]+ ns/op`)
)

// maxLine is how much of a line is looked at; the testing package's are short.
const maxLine = 4096

// Write takes a piece of the output.
func (t *tally) Write(p []byte) (int, error) {
	n := len(p)
	for {
		head, rest, found := bytes.Cut(p, []byte{'\n'})
		if room := maxLine - len(t.line); room > 0 {
			t.line = append(t.line, head[:min(room, len(head))]...)
		}
		if !found {
			return n, nil
		}
		t.count(string(t.line))
		t.line = t.line[:0]
		p = rest
	}
}

func (t *tally) count(line string) {
	if m := benchLine.FindStringSubmatch(line); m != nil {
		t.passed++
		return
	}
	_, text, ok := strings.Cut(line, string(rune(marker)))
	if !ok {
		return
	}
	m := testLine.FindStringSubmatch(text)
	if m == nil {
		return
	}
	what, name := m[1], m[2]
	if what == "--- SKIP:" {
		t.skipped = append(t.skipped, name)
	}
	if strings.Contains(name, "/") {
		return
	}
	if what == "=== RUN" {
		t.running = append(t.running, name)
		return
	}
	if i := slices.Index(t.running, name); i >= 0 {
		t.running = slices.Delete(t.running, i, i+1)
	}
	switch what {
	case "--- PASS:":
		t.passed++
	case "--- FAIL:":
		t.failed++
	}
}

// finish counts what never ended as failed.
func (t *tally) finish() {
	if len(t.line) > 0 {
		t.count(string(t.line))
		t.line = t.line[:0]
	}
	t.failed += len(t.running)
}
