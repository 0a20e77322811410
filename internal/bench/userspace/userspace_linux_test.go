package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/e2e"
	"github.com/lbd-project/lbd/internal/netnstest"
)

func TestParseFlags(t *testing.T) {
	got, status := parseFlags([]string{"-rounds", "2", "-time", "1s", "-contenders", "lbd,ipvs", "-metrics", "up", "-bin", "b"}, new(bytes.Buffer))
	if status != 0 {
		t.Fatalf("status %d", status)
	}
	want := options{2, time.Second, []string{"lbd", "ipvs"}, []string{"up"}, "b"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, args := range [][]string{
		{"-contenders", "limit,nobody"}, {"-contenders", ""}, {"-metrics", "speed"},
		{"-rounds", "0"}, {"-time", "1ms"}, {"-time", "1h"}, {"more"}, {"-unknown"},
	} {
		var errOut bytes.Buffer
		if status := run(context.Background(), args, new(bytes.Buffer), &errOut); status != 2 || errOut.Len() == 0 {
			t.Errorf("%v: want status 2 and a word, got %d, %q", args, status, &errOut)
		}
	}
}

// TestResults sees that each bar compares lbd with whom it names, and that what
// was not measured is not reported.
func TestResults(t *testing.T) {
	tr := &trial{options: options{time: time.Second, contenders: contenderNames(), metrics: metricNames()}, out: new(bytes.Buffer)}
	of := map[string]float64{nameRouting: 1, nameLimit: 2, nameLBD: 10, nameHAProxy: 4, nameNginx: 5, nameQueue: 8, nameIPVS: 20}
	for name, v := range of {
		for i, figure := range []string{figureRate, figureCPU, figureP50, figureDown, figureUp} {
			tr.samples.Add(figure, name, v*float64(i+1))
		}
	}
	var got strings.Builder
	for _, r := range tr.results() {
		fmt.Fprintf(&got, "%s %g\n", r.Name, r.Value)
	}
	want := "cps_vs_limit 5\ncps_vs_haproxy 2.5\ncps_vs_nginx 2\nbulk_down_vs_limit 5\nbulk_up_vs_limit 5\n" +
		"cpu_vs_limit 5\np50_vs_haproxy 2.5\ncps_vs_queue 1.25\ncpu_vs_queue 1.25\ncps_vs_ipvs 0.5\ncpu_vs_ipvs 0.5\np50_vs_ipvs 0.5\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("all (-want +got)\n%s", diff)
	}
	tr.contenders, tr.metrics = []string{nameLBD, nameIPVS}, []string{"latency"}
	if r := tr.results(); len(r) != 1 || r[0].Name != "p50_vs_ipvs" {
		t.Errorf("lbd and ipvs, latency: want p50_vs_ipvs, got %+v", r)
	}
}

func TestCheck(t *testing.T) {
	requests := metrics(time.Second)[0]
	for _, tt := range []struct {
		name string
		o    rig.Outcome
		ok   bool
	}{
		{"even", rig.Outcome{Done: 300, Servers: map[string]uint64{"A": 100, "B": 100, "C": 100}}, true},
		{"fair", rig.Outcome{Done: 300, Servers: map[string]uint64{"A": 200, "B": 70, "C": 30}}, true},
		{"one is spared", rig.Outcome{Done: 300, Servers: map[string]uint64{"A": 150, "B": 121, "C": 29}}, false},
		{"one gets nothing", rig.Outcome{Done: 300, Servers: map[string]uint64{"A": 150, "B": 150}}, false},
		{"nothing", rig.Outcome{}, false},
	} {
		if err := requests.check(&tt.o); (err == nil) != tt.ok {
			t.Errorf("%s: want good %v, got %v", tt.name, tt.ok, err)
		}
	}
}

// TestNetnsLimit plays a short round with the contenders that need no program.
func TestNetnsLimit(t *testing.T) {
	netnstest.Require(t, "netns")
	dir := t.TempDir()
	rig.Build(t.Context(), t, "../load", dir)
	var out, errOut bytes.Buffer
	status := run(t.Context(), []string{"-bin", dir, "-rounds", "2", "-time", "100ms", "-contenders", "routing,limit"}, &out, &errOut)
	if status != 0 {
		t.Fatalf("status %d\n%s%s", status, &out, &errOut)
	}
	for _, want := range []string{"round 2 requests:  routing ", "round 2 up:  routing ", "\nlimit ", "\nrouting "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, &out)
		}
	}
}

// TestNetnsLBD plays a short round with the userspace engine.
func TestNetnsLBD(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	dir := t.TempDir()
	rig.Build(t.Context(), t, "../load", dir)
	rig.BuildLBD(t.Context(), t, dir)
	o := options{rounds: 1, time: 100 * time.Millisecond, contenders: []string{nameLBD, nameLimit, nameQueue}, metrics: metricNames(), bin: dir}
	tr := &trial{options: o, out: new(bytes.Buffer)}
	if err := e2e.WithHost(func(h *e2e.Host) error { return tr.play(t.Context(), h) }); err != nil {
		t.Fatal(err)
	}
	results := tr.results()
	if len(results) != 6 {
		t.Errorf("want 4 results in units of the limit and 2 in those of the queue, got %+v", results)
	}
	for _, r := range results {
		if !(r.Value > 0) {
			t.Errorf("%s: want more than 0, got %g", r.Name, r.Value)
		}
	}
}
