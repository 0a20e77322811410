package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/netnstest"
)

func TestParseFlags(t *testing.T) {
	got, status := parseFlags([]string{"-engine", "kernel", "-slow", "10", "-requests", "3000", "-bin", "b"}, new(bytes.Buffer))
	if status != 0 {
		t.Fatalf("status %d", status)
	}
	want := options{"kernel", 10, 3000, 200, "b"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, args := range [][]string{
		{"-engine", "warp"}, {"-slow", "0"}, {"-slow", "101"}, {"-requests", "0"}, {"-requests", "1000001"},
		{"-clients", "0"}, {"-clients", "1001"}, {"more"}, {"-unknown"},
	} {
		var errOut bytes.Buffer
		if status := run(context.Background(), args, new(bytes.Buffer), &errOut); status != 2 || errOut.Len() == 0 {
			t.Errorf("%v: want status 2 and a word, got %d, %q", args, status, &errOut)
		}
	}
}

func TestResults(t *testing.T) {
	rr := &rig.Outcome{Done: 1000, Elapsed: 2 * time.Second, P95: 400 * time.Millisecond}
	lc := &rig.Outcome{Done: 1000, Elapsed: time.Second, P95: 100 * time.Millisecond}
	got := make(map[string]float64)
	for _, r := range (options{engine: "kernel"}).results(rr, lc) {
		got[r.Name] = r.Value
	}
	want := map[string]float64{"throughput_lc_vs_rr_kernel": 2, "p95_lc_vs_rr_kernel": 0.25}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestShare(t *testing.T) {
	o := &rig.Outcome{Servers: map[string]uint64{"A": 10, "C": 3}}
	if got := share(o); got != "10/0/3" {
		t.Errorf("want 10/0/3, got %s", got)
	}
}

// TestNetnsPlay has round robin use all servers alike, and least connection the
// fast ones more.
func TestNetnsPlay(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	dir := t.TempDir()
	rig.Build(t.Context(), t, "../load", dir)
	rig.BuildLBD(t.Context(), t, dir)
	o := options{engine: "userspace", slow: 1, requests: 600, clients: 150, bin: dir}
	for _, s := range schedulers() {
		switch s.label {
		case labelRR:
			out, err := o.play(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if got := share(out); got != "200/200/200" {
				t.Errorf("rr: want 200/200/200, got %s", got)
			}
		case labelLC:
			out, err := o.play(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if a, b, c := out.Servers["A"], out.Servers["B"], out.Servers["C"]; !(a > b && b > c && a+b+c == 600) {
				t.Errorf("lc: want 600 requests, the faster the more, got %d/%d/%d", a, b, c)
			}
		}
	}
}
