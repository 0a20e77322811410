package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/netnstest"
)

func TestParseFlags(t *testing.T) {
	got, status := parseFlags([]string{"-connections", "5000", "-rate-floor", "10", "-seed", "7", "-bin", "b"}, new(bytes.Buffer))
	if status != 0 {
		t.Fatalf("status %d", status)
	}
	if diff := cmp.Diff(options{5000, 10, 7, "b"}, got, cmp.AllowUnexported(options{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, args := range [][]string{
		{"-connections", "999"}, {"-connections", "2000001"}, {"-rate-floor", "0"}, {"-rate-floor", "1000"}, {"more"}, {"-unknown"},
	} {
		var errOut bytes.Buffer
		if status := run(context.Background(), args, new(bytes.Buffer), &errOut); status != 2 || errOut.Len() == 0 {
			t.Errorf("%v: want status 2 and a word, got %d, %q", args, status, &errOut)
		}
	}
}

func TestParse(t *testing.T) {
	kb, err := bench.Memory([]byte("VmHWM:\t   29000 kB\nVmRSS:\t   28416 kB\n"), "VmRSS")
	if kb != 28416 || err != nil {
		t.Errorf("want 28416, got %d, %v", kb, err)
	}
	if _, err := bench.Memory([]byte("VmHWM:\t   29000 kB\n"), "VmRSS"); err == nil {
		t.Error("want an error where there is no VmRSS")
	}
	dump := "level=INFO msg=ready\nSIGQUIT: quit\ngoroutine 0 gp=0x1 m=0 [idle]:\nx()\n" +
		"goroutine 1 gp=0x2 m=nil [select]:\nmain.main()\n\ngoroutine 17 gp=0x3 m=nil [syscall, 2 minutes]:\nf()\n"
	if n := countGoroutines(dump); n != 2 {
		t.Errorf("want 2 goroutines, got %d", n)
	}
}

// TestMemory keeps the most of both times, and what it was for.
func TestMemory(t *testing.T) {
	var m memory
	for _, n := range []struct {
		kb, held int
		early    bool
	}{{30000, 50, true}, {40000, 100, true}, {35000, 60, true}, {38000, 100, false}, {42000, 90, false}} {
		m.note(n.kb, n.held, n.early)
	}
	if want := (memory{early: 40000, late: 42000, earlyHeld: 100, lateHeld: 100}); m != want {
		t.Errorf("want %+v, got %+v", want, m)
	}
}

// TestResults lets each finding miss its bar.
func TestResults(t *testing.T) {
	good := func() *findings {
		return &findings{
			outcome: &rig.Outcome{Done: 100, Elapsed: time.Second}, counted: 100,
			memory: memory{early: 20000, late: 30000}, filesBefore: 5, files: 13, goroutinesBefore: 9, goroutines: 17,
		}
	}
	for name, spoil := range map[string]func(*findings){
		"":                func(*findings) {},
		"soak_failed":     func(f *findings) { f.outcome.Failed = 1 },
		"soak_uncounted":  func(f *findings) { f.counted = 99 },
		"soak_active":     func(f *findings) { f.active = 1 },
		"soak_inactive":   func(f *findings) { f.apart = 1 },
		"soak_memory":     func(f *findings) { f.memory.late = 33000 },
		"soak_files":      func(f *findings) { f.files++ },
		"soak_goroutines": func(f *findings) { f.goroutines++ },
	} {
		f := good()
		spoil(f)
		var errOut bytes.Buffer
		if ok := bench.Print(new(bytes.Buffer), &errOut, program, f.results()); ok != (name == "") || !strings.Contains(errOut.String(), name) {
			t.Errorf("%q: want it to miss its bar alone, got %v, %s", name, ok, &errOut)
		}
	}
}

// TestNetnsSoak makes a few of the connections.
func TestNetnsSoak(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	dir := t.TempDir()
	rig.Build(t.Context(), t, "../load", dir)
	rig.BuildLBD(t.Context(), t, dir)
	var out bytes.Buffer
	f, err := options{connections: 30000, floor: 500, seed: 1, bin: dir}.play(t.Context(), t, &out)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(&out)
	if f.memory.lateHeld == 0 {
		t.Error("no connections were held when memory was looked at")
	}
	if f.outcome.Done != 30000 || len(f.outcome.Servers) != servers {
		t.Errorf("want 30000 requests, some for each of %d real servers, got %d, %v; %v", servers, f.outcome.Done, f.outcome.Servers, f.complaint)
	}
	var errOut bytes.Buffer
	if !bench.Print(&out, &errOut, program, f.results()) {
		t.Errorf("%s\n%v", &errOut, f.complaint)
	}
}
