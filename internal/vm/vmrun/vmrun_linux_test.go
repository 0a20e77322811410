package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/vm"
	"github.com/lbd-project/lbd/internal/vm/wire"
)

// TestMain lets the test binary stand in for vmrun, which starts itself in new
// namespaces.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == inNetNSArg {
		fmt.Fprintln(os.Stderr, inNetNS(os.Args[2:]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestUsage(t *testing.T) {
	tests := []struct {
		args       []string
		env        map[string]string
		wantStatus int
		wantErr    string
	}{
		{args: nil, wantStatus: 2, wantErr: "usage: vmrun test"},
		{args: []string{"help"}, wantStatus: 0},
		{args: []string{"nonsense"}, wantStatus: 2, wantErr: `unknown command "nonsense"`},
		{args: []string{"test"}, wantStatus: 2, wantErr: "test needs a package"},
		{args: []string{"test", "-run", "(", "./x"}, wantStatus: 2, wantErr: "missing closing )"},
		{args: []string{"test", "-timeout", "0s", "./x"}, wantStatus: 2, wantErr: "-timeout must be above 0"},
		{args: []string{"test", "-nonsense"}, wantStatus: 2, wantErr: "not defined: -nonsense"},
		{args: []string{"test", "-h"}, wantStatus: 0},
		{args: []string{"run"}, wantStatus: 2, wantErr: "run needs a program"},
		{args: []string{"run", "./absent"}, wantStatus: 1, wantErr: "absent: no such file"},
		{args: []string{"run", "no-such-tool"}, wantStatus: 1, wantErr: "no-such-tool is not installed"},
		{args: []string{"exec"}, wantStatus: 2, wantErr: "exec needs a test binary"},
		{args: []string{"exec", "x", "-test.coverprofile=y"}, wantStatus: 1, wantErr: "-test.coverprofile: files of go test"},
		{args: []string{"run", "/bin/sh"}, env: map[string]string{"LBD_VM": "moon"}, wantStatus: 2, wantErr: "LBD_VM=moon is none of vm, host, auto"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			a := &app{stdout: &stdout, stderr: &stderr, getenv: func(name string) string { return tt.env[name] }}
			if got := a.main(t.Context(), tt.args); got != tt.wantStatus {
				t.Errorf("status = %d, want %d", got, tt.wantStatus)
			}
			if !strings.Contains(stderr.String(), tt.wantErr) {
				t.Errorf("standard error = %q, want %q in it", stderr.String(), tt.wantErr)
			}
		})
	}
}

func TestSelection(t *testing.T) {
	tests := []struct {
		args []string
		want []string
	}{
		{[]string{"p"}, []string{"TestKernelA"}},
		{[]string{"-run", "A/sub", "p"}, []string{"TestKernelA", "TestA"}},
		{[]string{"-bench", ".", "p"}, []string{"BenchmarkA"}},
		{[]string{"-bench", ".", "-run", "^TestA", "p"}, []string{"TestA", "BenchmarkA"}},
	}
	for _, tt := range tests {
		a := &app{stderr: new(bytes.Buffer), getenv: func(string) string { return "" }}
		f, err := a.testFlags(tt.args)
		if err != nil {
			t.Fatal(err)
		}
		s, err := f.selection()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range []string{"TestKernelA", "TestA", "BenchmarkA", "FuzzA", "helper"} {
			if s.wants(name) {
				got = append(got, name)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v: functions (-want +got):\n%s", tt.args, diff)
		}
	}
}

func TestListPackages(t *testing.T) {
	f := &testFlags{run: "^TestListPackages$"}
	s, err := f.selection()
	if err != nil {
		t.Fatal(err)
	}
	got, err := listPackages(t.Context(), []string{"../..."}, s)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].short() != "./internal/vm/vmrun" {
		t.Errorf("packages = %+v, want this one alone", got)
	}
	// One that is named is kept, so that it fails for want of tests.
	if got, err := listPackages(t.Context(), []string{"../lo"}, s); err != nil || len(got) != 1 {
		t.Errorf("packages = %+v, %v, want lo", got, err)
	}
	if _, err := listPackages(t.Context(), []string{"../lo/..."}, s); err == nil {
		t.Error("nothing to run, and no error")
	}
}

func TestSink(t *testing.T) {
	const pass = "\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\nPASS\n"
	const skip = "\x16=== RUN   TestS\n\x16--- SKIP: TestS (0.00s)\nPASS\n"
	a := pkg{ImportPath: "m/a"}
	a.Module.Path = "m"
	tests := []struct {
		name       string
		out        string
		exit       wire.Exit
		alarms     []string
		wantStatus int
		want       string
	}{
		{"ok", pass, wire.Exit{Duration: 1240 * time.Millisecond}, nil, 0,
			"vm: ok ./a 1 passed 0 failed 0 skipped 1.2s\nvm: kernel 6.1: 1 passed, 0 failed, 0 skipped\n"},
		{"no tests", "PASS\n", wire.Exit{}, nil, 1,
			"PASS\nvm: FAIL ./a 0 passed 0 failed 0 skipped 0.0s (ran no tests)\nvm: kernel 6.1: 0 passed, 0 failed, 0 skipped\n"},
		{"skip", pass + skip, wire.Exit{}, nil, 1,
			strings.ReplaceAll(pass+skip, "\x16", "") + "vm: FAIL ./a 1 passed 0 failed 1 skipped 0.0s (skipped TestS)\nvm: kernel 6.1: 1 passed, 0 failed, 1 skipped\n"},
		{"crash after the tests", pass, wire.Exit{Status: 2}, nil, 1,
			strings.ReplaceAll(pass, "\x16", "") + "vm: FAIL ./a 1 passed 0 failed 0 skipped 0.0s (exit status 2)\nvm: kernel 6.1: 1 passed, 0 failed, 0 skipped\n"},
		{"time-out", "\x16=== RUN   TestA\nSIGQUIT\n", wire.Exit{Status: 2, TimedOut: true}, nil, 124,
			"=== RUN   TestA\nSIGQUIT\nvm: FAIL ./a 0 passed 1 failed 0 skipped 0.0s (time was up; did not end: TestA)\nvm: kernel 6.1: 0 passed, 1 failed, 0 skipped\n"},
		{"alarm", pass, wire.Exit{}, []string{"BUG: x"}, 1,
			"vm: ok ./a 1 passed 0 failed 0 skipped 0.0s\nBUG: x\ntrace\n\nvm: FAIL kernel alarm: BUG: x\nvm: kernel 6.1: 1 passed, 0 failed, 0 skipped\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			s := &testSink{out: &out, packages: []pkg{a}}
			// A boot that was lost counts for nothing.
			s.Begin(0)
			s.Output(false, []byte(pass))
			s.Exit(wire.Exit{})
			out.Reset()
			s.Begin(0)
			s.Output(false, []byte(tt.out))
			s.Exit(tt.exit)
			r := &vm.Report{Release: "6.1", Exits: []wire.Exit{tt.exit}, Alarms: tt.alarms, KernelLog: []byte("before\nBUG: x\ntrace\n")}
			status := total(&out, []*testSink{s}, []*vm.Report{r})
			if status != tt.wantStatus {
				t.Errorf("status = %d, want %d", status, tt.wantStatus)
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTwoGuests sees that each guest's packages count, and that the worst of both
// is the status.
func TestTwoGuests(t *testing.T) {
	var packages []pkg
	for _, name := range []string{"m/a", "m/b", "m/c"} {
		p := pkg{ImportPath: name}
		p.Module.Path = "m"
		packages = append(packages, p)
	}
	groups := separate(packages, packages[1:2])
	want := [][]pkg{{packages[0], packages[2]}, {packages[1]}}
	if diff := cmp.Diff(want, groups); diff != "" {
		t.Fatalf("groups (-want +got):\n%s", diff)
	}
	if got := separate(packages, packages); len(got) != 1 || len(got[0]) != 3 {
		t.Errorf("all beside: %v, want one group", got)
	}
	for _, tt := range []struct {
		name, first, second string
		wantStatus          int
		want                string
	}{
		{"good", "PASS", "PASS", 0, "3 passed, 0 failed, 0 skipped"},
		{"the first fails", "FAIL", "PASS", 1, "1 passed, 2 failed, 0 skipped"},
		{"the second fails", "PASS", "FAIL", 1, "2 passed, 1 failed, 0 skipped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			var sinks []*testSink
			for i, word := range []string{tt.first, tt.second} {
				s := &testSink{out: &lines{w: &out}, packages: groups[i]}
				for k := range groups[i] {
					s.Begin(k)
					s.Output(false, []byte("\x16=== RUN   TestA\n\x16--- "+word+": TestA (0.00s)\n"))
					s.Exit(wire.Exit{Index: k})
				}
				sinks = append(sinks, s)
			}
			r := &vm.Report{Release: "6.1"}
			if got := total(&out, sinks, []*vm.Report{r, r}); got != tt.wantStatus {
				t.Errorf("status = %d, want %d", got, tt.wantStatus)
			}
			if want := "vm: kernel 6.1: " + tt.want + "\n"; !strings.HasSuffix(out.String(), want) || strings.Count(out.String(), "vm: kernel") != 1 {
				t.Errorf("want %q at the end, got\n%s", want, &out)
			}
		})
	}
}

func TestExecArgs(t *testing.T) {
	timeout := time.Minute
	got, err := execArgs([]string{"-test.testlogfile=/tmp/x", "-test.paniconexit0", "-test.timeout=2m0s", "-test.run=A", "-test.coverprofile="}, &timeout)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"-test.paniconexit0", "-test.timeout=2m0s", "-test.run=A", "-test.coverprofile="}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if timeout != 2*time.Minute+execMargin {
		t.Errorf("time-out = %v, want go test's and a margin", timeout)
	}
}

func TestProgramEnv(t *testing.T) {
	got := programEnv([]string{"PATH=/x", "LBD_A=1", "LBD_VM=host", "LBD_OUT=/x", "TERM=dumb", "LBD_TEST_REQUIRE=netns", "junk"}, requireTiers, "LBD_B=2")
	want := []string{"LBD_A=1", "TERM=dumb", "LBD_TEST_REQUIRE=netns", "LBD_B=2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

// TestNetnsHost runs a program the way -on-host does.
func TestNetnsHost(t *testing.T) {
	netnstest.Require(t, "netns")
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	const text = "#!/bin/sh\nreadlink /proc/self/ns/net\nls /sys/class/net\ncat /proc/net/if_inet6\necho $LBD_OUT $1\nexit 5\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := host{}.run(ctx, work{
		tasks: []task{{file: script, dir: dir, args: []string{"argument"}, timeout: time.Minute}},
		sink:  &copySink{&stdout, &stderr}, out: "/some/where",
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Exits) != 1 || r.Exits[0].Status != 5 || r.Exits[0].TimedOut {
		t.Errorf("exits = %+v, want status 5; it said %s", r.Exits, stderr.String())
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	if lines[0] == own || !strings.HasPrefix(lines[0], "net:") {
		t.Errorf("network namespace = %s, want another than %s", lines[0], own)
	}
	if got := lines[len(lines)-1]; got != "/some/where argument" {
		t.Errorf("last line = %q, want folder and argument", got)
	}
	if !strings.Contains(stdout.String(), "00000000000000000000000000000001") {
		t.Errorf("lo is not up:\n%s", stdout.String())
	}
}

func TestNetnsHostTimeout(t *testing.T) {
	netnstest.Require(t, "netns")
	sleep, err := filepath.EvalSymlinks("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	r, err := host{}.run(t.Context(), work{
		tasks: []task{{file: sleep, dir: t.TempDir(), args: []string{"60"}, timeout: 500 * time.Millisecond}},
		sink:  &copySink{new(bytes.Buffer), new(bytes.Buffer)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Exits[0].TimedOut || r.Exits[0].Status != 128+3 {
		t.Errorf("exit = %+v, want a time-out by SIGQUIT", r.Exits[0])
	}
}
