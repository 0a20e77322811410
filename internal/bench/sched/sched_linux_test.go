package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// TestRun runs the benchmark for a moment: what it prints is there, and the
// contenders choose alike, which it checks itself.
func TestRun(t *testing.T) {
	var out, errs bytes.Buffer
	status := run([]string{"-rounds", "1", "-time", "1us", "-schedulers", "wlc,nq", "-servers", "10,1000"}, &out, &errs)
	// Whether the bar is met is not asked of a run this short.
	if status != 0 && !strings.Contains(errs.String(), "wlc_1000_speedup_vs_scan is ") {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	for _, want := range []string{"wlc           table", "nq            array", "RESULT wlc_1000_speedup_vs_scan ", "RESULT allocs_per_pick 0\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
	if status := run([]string{"-schedulers", "nosuch"}, io.Discard, io.Discard); status != 1 {
		t.Errorf("want status 1 for an unknown scheduler, got %d", status)
	}
	if status := run([]string{"-servers", "10,none"}, io.Discard, io.Discard); status != 2 {
		t.Errorf("want status 2 for no number of servers, got %d", status)
	}
	if status := run([]string{"-rounds", "0"}, io.Discard, io.Discard); status != 2 {
		t.Errorf("want status 2 for no rounds, got %d", status)
	}
}
