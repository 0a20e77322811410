package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/internal/e2e"
	"github.com/lbd-project/lbd/internal/netnstest"
)

func TestParseFlags(t *testing.T) {
	got, status := parseFlags([]string{"-type", "http", "-targets", "500", "-interval", "2s", "-timeout", "1s", "-fall", "3", "-time", "5s", "-deaths", "30", "-bin", "b", "-keepalived=false", "-rounds", "2"}, new(bytes.Buffer))
	if status != 0 {
		t.Fatalf("status %d", status)
	}
	want := options{kind: "http", targets: 500, interval: 2 * time.Second, timeout: time.Second, fall: 3, time: 5 * time.Second, deaths: 30, bin: "b", rounds: 2}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got, want := got.bound(), 7100*time.Millisecond; got != want {
		t.Errorf("bound: want %v, got %v", want, got)
	}
	for _, args := range [][]string{
		{"-type", "udp"}, {"-targets", "0"}, {"-targets", "50001"}, {"-fall", "0"}, {"-timeout", "2s"}, {"-interval", "1ms"}, {"-time", "1ms"},
		{"-deaths", "15"}, {"-targets", "399"}, {"-rounds", "0"}, {"-keepalived", "-type", "http"}, {"more"}, {"-unknown"},
	} {
		var errOut bytes.Buffer
		if status := run(context.Background(), args, new(bytes.Buffer), &errOut); status != 2 || errOut.Len() == 0 {
			t.Errorf("%v: want status 2 and a word, got %d, %q", args, status, &errOut)
		}
	}
}

// TestFind reads a log in which one target is found twice, one late, one before it died,
// and one that lives.
func TestFind(t *testing.T) {
	begin := time.Date(2026, 11, 30, 9, 0, 0, 500_900, time.UTC)
	died := deaths{target(0): begin, target(1): begin.Add(time.Second), target(251): begin}
	log := strings.Join([]string{
		`time=2026-11-30T09:00:00.000Z level=INFO msg=starting version=devel`,
		`time=2026-11-30T08:59:59.000Z level=DEBUG msg="probe changed" check="tcp 10.1.0.1:80 interval=1s timeout=500ms rise=1 fall=2" state=up err=<nil>`,
		`time=2026-11-30T09:00:02.000Z level=DEBUG msg="probe changed" check="tcp 10.1.0.1:80 interval=1s timeout=500ms rise=1 fall=2" state=down err="connect 10.1.0.1:80: no answer in time"`,
		`time=2026-11-30T09:00:02.100Z level=WARN msg="real server down" service=a real_server=10.1.0.1:80 weight=0`,
		`time=2026-11-30T09:00:03.000Z level=WARN msg="real server down" service=b real_server=10.1.0.1:80 weight=0`,
		`time=2026-11-30T09:00:04.000Z level=DEBUG msg="probe changed" check="http/1.1 method=\"GET\" path=\"/\" status=200-299 10.1.0.2:80 interval=1s timeout=500ms rise=1 fall=2" state=down err=x`,
		`time=2026-11-30T09:00:05.000Z level=DEBUG msg="probe changed" check="tcp 10.1.0.3:80 interval=1s timeout=500ms rise=1 fall=2" state=down err=x`,
		`time=2026-11-30T08:59:59.999Z level=DEBUG msg="probe changed" check="tcp 10.1.1.2:80 interval=1s timeout=500ms rise=1 fall=2" state=down err=x`,
		"",
	}, "\n")
	found, out, err := died.find(log)
	if err != nil {
		t.Fatal(err)
	}
	const ms = time.Millisecond
	late := 500_900 * time.Nanosecond
	allow := cmp.AllowUnexported(detection{})
	if diff := cmp.Diff(detection{[]time.Duration{2000*ms - late, 3000*ms - late, never}, 2, strings.Split(log, "\n")[6]}, found, allow); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(detection{took: []time.Duration{2100*ms - late, never, never}}, out, allow); diff != "" {
		t.Errorf("out (-want +got):\n%s", diff)
	}
	if got := found.quantile(0.5); got != 3000*ms-late {
		t.Errorf("median: got %v", got)
	}
	if got := (detection{}).quantile(0.99); got != never {
		t.Errorf("of none: want never, got %v", got)
	}
	for _, bad := range []string{`msg="real server down" real_server=10.1.0.1:80`, `time=2026-11-30T09:00:00Z msg="real server down" real_server=x`} {
		if _, _, err := died.find(bad); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func TestParse(t *testing.T) {
	got, err := parseProcess([]byte("7 (a) b) S 3 7 7 0 -1 4194560 100 0 5 0 250 50 20 10 20 0 9 0 1 2 3\n"))
	if want := (process{3, 3300 * time.Millisecond}); got != want || err != nil {
		t.Errorf("want %v, got %v, %v", want, got, err)
	}
	for _, bad := range []string{"", "7 (lbd) S 1", "7 (lbd) S 1 7 7 0 -1 4194560 100 0 5 0 x 50 0 0"} {
		if _, err := parseProcess([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	host, err := parseHost([]byte("cpu  100 20 30 4000 500 6 7 37 9 0\ncpu0 1 2 3\n"))
	if host != 2*time.Second || err != nil {
		t.Errorf("want 2s, got %v, %v", host, err)
	}
	for _, bad := range []string{"", "intr 1 2 3 4 5 6 7 8 9", "cpu 1 2"} {
		if _, err := parseHost([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	kb, err := bench.Memory([]byte("VmRSS:\t   28416 kB\nVmHWM:\t   29000 kB\n"), "VmHWM")
	if kb != 29000 || err != nil {
		t.Errorf("want 29000, got %d, %v", kb, err)
	}
	if _, err := bench.Memory(nil, "VmHWM"); err == nil {
		t.Error("want an error where there is no VmHWM")
	}
}

// TestNetnsPlay has all deaths found in a small network, and nobody else.
func TestNetnsPlay(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	lbd, _, err := e2e.Programs(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// A slow host must not fail checks.
	o := options{kind: "http", targets: 150, interval: 2 * time.Second, timeout: 2 * time.Second, fall: 1, time: time.Second, deaths: 20, bin: filepath.Dir(lbd)}
	f, err := o.play(t.Context(), t)
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]detection{"found": f.found, "out": f.out} {
		if len(d.took) != 20 || d.took[0] < 0 || d.quantile(1) == never || d.mistaken != 0 {
			t.Errorf("%s: want 20 deaths and no mistake, got %d: %v, %d", name, len(d.took), d, d.mistaken)
		}
	}
	if f.checks < 50 || f.cpu < 0 || f.memory == 0 || f.elapsed < time.Second {
		t.Errorf("got %+v", f)
	}
}

// TestFamilyCPU adds up a process with its child and grandchild, and nobody else.
func TestFamilyCPU(t *testing.T) {
	proc := t.TempDir()
	for pid, parent := range map[int]int{1: 0, 50: 1, 51: 50, 40: 51, 60: 1, 61: 60} {
		stat := fmt.Sprintf("%d (x) S %d 1 1 0 -1 0 0 0 0 0 %d 0 0 0 20 0\n", pid, parent, pid)
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := familyCPU(proc, 50); got != 141*hundredth || err != nil {
		t.Errorf("want %v, got %v, %v", 141*hundredth, got, err)
	}
	if _, err := familyCPU(proc, 2); err == nil {
		t.Error("of no process: no error")
	}
}

// TestComparison takes the middle of the rounds' ratios.
func TestComparison(t *testing.T) {
	s := new(bench.Samples)
	for _, round := range [][2]float64{{10, 20}, {30, 20}, {90, 100}} {
		s.Add(perCheck, lbdName, round[0])
		s.Add(perCheck, keepalivedName, round[1])
	}
	got := make(map[string]float64)
	for _, r := range comparison(s) {
		got[r.Name] = r.Value
	}
	want := map[string]float64{"cpu_vs_keepalived": 0.9, "health_us_per_check": 30, "keepalived_us_per_check": 20}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
