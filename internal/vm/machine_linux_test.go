package vm

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/lbd-project/lbd/internal/vm/wire"
)

// fakeQEMU is the head of a shell script in QEMU's place: it finds the console
// file among its arguments, counts its starts, and can send frames.
const fakeQEMU = `#!/bin/bash
for a; do case $a in file,id=console,path=*) console=${a#*path=};; esac; done
echo start >> STARTS
starts=$(wc -l < STARTS)
frame() { printf '%slbd\0\0\0'"\\x$(printf %02x ${#2})"'%s' "$1" "$2" >&3; }
`

// fakeMachine is a Machine whose QEMU is the script body.
func fakeMachine(t *testing.T, body string) (m *Machine, starts string) {
	t.Helper()
	dir := t.TempDir()
	starts = filepath.Join(dir, "starts")
	qemu := filepath.Join(dir, "qemu")
	if err := os.WriteFile(qemu, []byte(strings.ReplaceAll(fakeQEMU+body, "STARTS", starts)), 0o755); err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(dir, "base")
	if err := os.WriteFile(base, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return &Machine{opt: Options{CPUs: 1, MemoryMB: 1}, log: slog.New(slog.DiscardHandler), qemu: qemu, base: base, accel: accelTCG}, starts
}

func TestRun(t *testing.T) {
	const (
		hello  = "frame h ''\n"
		begin  = `frame b '{"Index":0}'` + "\n"
		exit   = `frame x '{"Index":0,"Status":7}'` + "\n"
		result = `frame r '{"Release":"6.1"}'` + "\n"
		panics = "echo 'Kernel panic - not syncing: x' >> $console\n"
	)
	tests := []struct {
		name, body string
		retry      Retry
		wantStarts int
		wantErr    string // "" is a report
	}{
		{name: "good", body: hello + begin + "frame o out\n" + exit + result, wantStarts: 1},
		{name: "good, but does not end", body: hello + begin + exit + result + "sleep 30", wantStarts: 1},
		{name: "ends at once", body: "exit 3", wantStarts: 2, wantErr: "qemu: exit status 3"},
		{name: "complains", body: "echo no such machine >&2; exit 1", wantStarts: 2, wantErr: "no such machine"},
		{name: "the second boot is good", body: "[ $starts = 1 ] && exit\n" + hello + begin + exit + result, wantStarts: 2},
		{name: "lost while a program ran", body: hello + begin, wantStarts: 1, wantErr: "ended without a result"},
		{name: "lost while tests ran", body: hello + begin, retry: RetryAll, wantStarts: 2, wantErr: "ended without a result"},
		{name: "panic while tests ran", body: hello + begin + panics, retry: RetryAll, wantStarts: 1, wantErr: "kernel panicked"},
		{name: "panic at boot", body: panics, wantStarts: 2, wantErr: "console ends with\nKernel panic - not syncing: x"},
		{name: "garbage, and does not end", body: "echo SeaBIOS says something >&3; sleep 30", wantStarts: 2, wantErr: "corrupt stream"},
		{name: "cut frame", body: hello + `printf 'rlbd\0\0\0\x09{' >&3`, wantStarts: 2, wantErr: "ended without a result"},
		{name: "result before the end", body: hello + result, wantStarts: 2, wantErr: "result after 0 of 1 commands"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// All scripts are written before any is run: a process that is just being
			// made may have one open for writing, which then cannot be run.
			m, starts := fakeMachine(t, tt.body)
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r, err := m.Run(ctx, Request{
				Commands: []wire.Command{{Path: "/x", Timeout: time.Minute}}, Sink: silent{}, Retry: tt.retry,
			})
			if tt.wantErr == "" {
				want := &Report{Release: "6.1", Exits: []wire.Exit{{Status: 7}}}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, r); diff != "" {
					t.Errorf("report (-want +got):\n%s", diff)
				}
			} else if !errors.Is(err, ErrNoResult) || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error = %v, want %v with %q", err, ErrNoResult, tt.wantErr)
			}
			log, err := os.ReadFile(starts)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(string(log), "\n"); got != tt.wantStarts {
				t.Errorf("%d boots, want %d", got, tt.wantStarts)
			}
		})
	}
}

func TestRunCancelled(t *testing.T) {
	m, starts := fakeMachine(t, "echo $$ > STARTS.pid; mv STARTS.pid STARTS.ready; sleep 30")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := m.Run(ctx, Request{Sink: silent{}})
		done <- err
	}()
	var pid int
	for deadline := time.Now().Add(time.Minute); pid == 0; {
		if time.Now().After(deadline) {
			t.Fatal("QEMU was not started")
		}
		text, _ := os.ReadFile(starts + ".ready")
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want %v", err, context.Canceled)
	}
	if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("QEMU still runs: %v", err)
	}
}

func TestChooseAccel(t *testing.T) {
	m, starts := fakeMachine(t, "frame h ''; frame r '{}'")
	for _, want := range []string{accelKVM, accelTCG} {
		if got, err := m.chooseAccel(t.Context(), t.TempDir(), want); err != nil || got != want {
			t.Errorf("chooseAccel(%s) = %s, %v", want, got, err)
		}
	}
	if _, err := m.chooseAccel(t.Context(), t.TempDir(), "fast"); err == nil || !strings.Contains(err.Error(), "auto, kvm, tcg") {
		t.Errorf("error = %v, want one that names the choices", err)
	}
	if _, err := os.Stat(starts); err == nil {
		t.Error("QEMU was started without need")
	}
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err != nil {
		return // nothing to probe here
	} else {
		f.Close()
	}
	cache := t.TempDir()
	for range 2 {
		if got, err := m.chooseAccel(t.Context(), cache, ""); err != nil || got != accelKVM {
			t.Errorf("chooseAccel with a good probe = %s, %v, want %s", got, err, accelKVM)
		}
	}
	log, err := os.ReadFile(starts)
	if err != nil || strings.Count(string(log), "\n") != 1 {
		t.Errorf("probe boots = %q, %v, want 1: the answer is kept", log, err)
	}
}
