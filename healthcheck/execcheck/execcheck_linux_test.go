package execcheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/command"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// script is a check by a shell script.
func script(text string) Check { return Check{Args: []string{"/bin/sh", "-c", text}} }

func check(t *testing.T, c Check, target string, env healthcheck.Env, timeout time.Duration) (healthcheck.Result, error) {
	t.Helper()
	ch, err := c.NewChecker(netip.MustParseAddrPort(target), env)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return ch.Check(ctx)
}

func TestCheck(t *testing.T) {
	dynamic := script("echo busy; exit 12")
	dynamic.Dynamic = true
	r, err := check(t, dynamic, "10.0.0.2:80", healthcheck.Env{}, 20*time.Second)
	want := healthcheck.Result{Latency: r.Latency, Detail: "exit status 12: busy", Advice: healthcheck.Advice{Weight: healthcheck.Weight{Kind: healthcheck.WeightAbsolute, Value: 10}}}
	if d := cmp.Diff(want, r); err != nil || d != "" || r.Latency <= 0 {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	r, err = check(t, script("echo gone >&2; exit 1"), "10.0.0.2:80", healthcheck.Env{}, 20*time.Second)
	if err == nil || err.Error() != "sh: exit status 1: gone" || r.Advice != (healthcheck.Advice{}) || r.Latency <= 0 {
		t.Errorf("want a failure, got %+v, %v", r, err)
	}
}

func TestCheckEnvironment(t *testing.T) {
	for target, want := range map[string]string{
		"10.0.0.2:80":          "exit status 0: yes 10.0.0.2 80 10.0.0.2:80 ",
		"[fd00::2]:443":        "exit status 0: yes fd00::2 443 [fd00::2]:443 ",
		"[::ffff:10.0.0.2]:80": "exit status 0: yes 10.0.0.2 80 10.0.0.2:80 ",
		"10.0.0.2:0":           "exit status 0: yes 10.0.0.2 0 10.0.0.2:0 ",
	} {
		c := script(`echo $OTHER $LBD_ADDRESS $LBD_PORT $LBD_TARGET $LBD_CHECK_TIMEOUT`)
		c.Env = map[string]string{"OTHER": "yes"}
		r, err := check(t, c, target, healthcheck.Env{}, 20*time.Second)
		rest, ok := strings.CutPrefix(r.Detail, want)
		left, perr := strconv.ParseFloat(rest, 64)
		if err != nil || !ok || perr != nil || left <= 0 || left >= 20 {
			t.Errorf("%s: want %q and less than 20 s, got %+v, %v", target, want, r, err)
		}
	}
	// No deadline, no time that is left.
	ch, err := script(`echo "<$LBD_CHECK_TIMEOUT>"`).NewChecker(netip.MustParseAddrPort("10.0.0.2:80"), healthcheck.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := ch.Check(context.Background()); err != nil || r.Detail != "exit status 0: <>" {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestCheckLocal tells a script that is not there from a server that is not.
func TestCheckLocal(t *testing.T) {
	_, err := check(t, Check{Args: []string{"/nonexistent/probe"}}, "10.0.0.2:80", healthcheck.Env{}, 20*time.Second)
	want := "run /nonexistent/probe: cannot start: fork/exec /nonexistent/probe: no such file or directory (fault of this host)"
	if err == nil || err.Error() != want || !errors.Is(err, healthcheck.ErrLocal) || !errors.Is(err, unix.ENOENT) {
		t.Errorf("want %q, got %v", want, err)
	}
}

// TestCheckKilled has scripts that would give a weight to whoever kills them.
func TestCheckKilled(t *testing.T) {
	for name, text := range map[string]string{
		"at once":     "exec sleep 300",
		"with status": "trap 'exit 200' TERM; while :; do sleep 0.01; done",
		"stubborn":    "trap '' TERM; sleep 300; exit 200",
		"by others":   "kill -KILL $$",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := script("echo begun; " + text)
			c.Dynamic = true
			timeout := 2 * time.Second
			if name == "by others" {
				timeout = 20 * time.Second
			}
			r, err := check(t, c, "10.0.0.2:80", healthcheck.Env{}, timeout)
			// A busy host takes a while to begin.
			for r.Detail == "" && timeout < 20*time.Second {
				timeout *= 2
				r, err = check(t, c, "10.0.0.2:80", healthcheck.Env{}, timeout)
			}
			if err == nil || r.Advice != (healthcheck.Advice{}) || r.Detail != "begun" || errors.Is(err, healthcheck.ErrLocal) {
				t.Errorf("want a failure without advice, got %+v, %v", r, err)
			}
			if killed := name != "by others"; errors.Is(err, context.DeadlineExceeded) != killed {
				t.Errorf("want deadline exceeded %v, got %v", killed, err)
			}
		})
	}
}

// TestCheckEndsInTime has a program that SIGTERM ends, which it gets before the
// deadline of the check, and as it was told.
func TestCheckEndsInTime(t *testing.T) {
	ch, err := script(`echo "$LBD_CHECK_TIMEOUT"; exec sleep 300`).NewChecker(netip.MustParseAddrPort("10.0.0.2:80"), healthcheck.Env{})
	if err != nil {
		t.Fatal(err)
	}
	// A busy machine takes a while to begin, and to end a program.
	for timeout := 2 * time.Second; ; timeout *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		r, err := ch.Check(ctx)
		late := ctx.Err()
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("want deadline exceeded, got %v", err)
		}
		left, perr := strconv.ParseFloat(r.Detail, 64)
		if least := command.Reserve(timeout).Seconds() / 2; late == nil && perr == nil && left <= timeout.Seconds()-least {
			break
		}
		if timeout > 10*time.Second {
			t.Fatalf("with a deadline of %v: got %+v, %v, after the deadline: %v", timeout, r, err, late)
		}
	}
}

// TestMonitorDynamic has a script give a weight, hang and give it again: the
// weight is there, gone, and the same again, and not the sum.
func TestMonitorDynamic(t *testing.T) {
	flag := t.TempDir() + "/hang"
	c := script(`[ -e "$FLAG" ] && sleep 300; exit 12`)
	c.Dynamic, c.Env = true, map[string]string{"FLAG": flag}
	m := healthcheck.New(healthcheck.Options{})
	probe := healthcheck.Probe{Method: c, Target: netip.MustParseAddrPort("10.0.0.2:80"),
		Timing: healthcheck.Timing{Interval: 300 * time.Millisecond, Timeout: 300 * time.Millisecond, Rise: 1, Fall: 1}}
	if err := m.Set([]healthcheck.Probe{probe}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	defer func() { cancel(); <-done }()
	weight := healthcheck.Advice{Weight: healthcheck.Weight{Kind: healthcheck.WeightAbsolute, Value: 10}}
	for round := range 3 {
		for _, want := range []healthcheck.Status{{State: healthcheck.Up, Advice: weight}, {State: healthcheck.Down}} {
			hang := want.State == healthcheck.Down
			if hang {
				if err := os.WriteFile(flag, nil, 0o644); err != nil {
					t.Fatal(err)
				}
			} else if err := os.Remove(flag); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			var got healthcheck.Status
			for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
				if got, _ = m.Status(probe.Key()); got.State == want.State {
					break
				}
			}
			if got.State != want.State || got.Advice != want.Advice {
				t.Fatalf("round %d: want %v and %+v, got %+v", round, want.State, want.Advice, got)
			}
		}
	}
}

// TestNetnsExec runs the script in the namespace of the probes, and in that of
// the check.
func TestNetnsExec(t *testing.T) {
	netnstest.Require(t, "netns")
	probes, other := netnstest.New(t), netnstest.New(t)
	id := func(ns *netnstest.NS) string {
		var st unix.Stat_t
		if err := unix.Fstat(ns.FD(), &st); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("exit status 0: net:[%d]", st.Ino)
	}
	c := script("readlink /proc/self/ns/net")
	env := healthcheck.Env{Enter: probes.Do}
	if r, err := check(t, c, "10.0.0.2:80", env, 20*time.Second); err != nil || r.Detail != id(probes) {
		t.Errorf("want %s, got %+v, %v", id(probes), r, err)
	}
	c.NetNS = other.Path()
	if r, err := check(t, c, "10.0.0.2:80", env, 20*time.Second); err != nil || r.Detail != id(other) {
		t.Errorf("want %s, got %+v, %v", id(other), r, err)
	}
	c.NetNS = "no-such-namespace"
	if _, err := check(t, c, "10.0.0.2:80", env, 20*time.Second); !errors.Is(err, os.ErrNotExist) || !errors.Is(err, healthcheck.ErrLocal) {
		t.Errorf("want a missing namespace, got %v", err)
	}
}

// TestCheckLeaksNothing makes a thousand checks that fail, and counts what is
// left of them.
func TestCheckLeaksNothing(t *testing.T) {
	env := healthcheck.Env{Enter: func(create func() error) error { return create() }}
	for name, tt := range map[string]struct {
		check   Check
		n       int
		timeout time.Duration
	}{
		"fails":   {script("exit 1"), 1000, 20 * time.Second},
		"missing": {Check{Args: []string{"/nonexistent/probe"}}, 1000, 20 * time.Second},
		"hangs":   {script("sleep 300 & exec sleep 300"), 300, 3 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			tt.check.Env = tag
			ch, err := tt.check.NewChecker(netip.MustParseAddrPort("10.0.0.2:80"), env)
			if err != nil {
				t.Fatal(err)
			}
			run := func() {
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				if _, err := ch.Check(ctx); err == nil {
					t.Fatal("want an error")
				}
			}
			run()
			fds, routines := settled(t)
			for range tt.n {
				run()
			}
			// What got SIGKILL may take a moment on a busy machine.
			deadline := time.Now().Add(20 * time.Second)
			left := remaining(t)
			for ; left != "" && time.Now().Before(deadline); left = remaining(t) {
				time.Sleep(10 * time.Millisecond)
			}
			gotFDs, gotRoutines := settled(t)
			for (gotFDs > fds || gotRoutines > routines) && time.Now().Before(deadline) {
				gotFDs, gotRoutines = settled(t)
			}
			if gotFDs > fds || gotRoutines > routines {
				t.Errorf("want %d descriptors and %d goroutines as before, got %d and %d", fds, routines, gotFDs, gotRoutines)
			}
			if left != "" {
				t.Error(left)
			}
		})
	}
}

// tag marks the processes of this test binary by their environment.
var tag = map[string]string{"TAG": fmt.Sprint(os.Getpid())}

// remaining says what is left of the programs that checks have run.
func remaining(t *testing.T) string {
	t.Helper()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); !errors.Is(err, unix.ECHILD) {
		return fmt.Sprintf("want no process left, got %v", err)
	}
	if got := tagged(t); len(got) > 0 {
		return fmt.Sprintf("still run: %q", got)
	}
	return ""
}

// tagged returns the command lines of the processes with the tag.
func tagged(t *testing.T) []string {
	t.Helper()
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, d := range dirs {
		env, err := os.ReadFile("/proc/" + d.Name() + "/environ")
		if err != nil || !strings.Contains(string(env), "TAG="+tag["TAG"]+"\x00") {
			continue
		}
		if line, err := os.ReadFile("/proc/" + d.Name() + "/cmdline"); err == nil {
			lines = append(lines, string(line))
		}
	}
	return lines
}

// settled counts descriptors and goroutines, once the numbers stay for a while.
func settled(t *testing.T) (fds, routines int) {
	t.Helper()
	for same := 0; same < 20; time.Sleep(time.Millisecond) {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == fds && runtime.NumGoroutine() == routines {
			same++
			continue
		}
		fds, routines, same = len(names), runtime.NumGoroutine(), 0
	}
	return fds, routines
}
