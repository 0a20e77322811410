package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/filetest"
)

// tag is a text that marks the processes of the test by their environment.
func tag(t *testing.T) string { return fmt.Sprintf("%s-%d", t.Name(), os.Getpid()) }

// tagged returns the command lines of the processes with a tag, by pid.
func tagged(t *testing.T, tag string) map[int]string {
	t.Helper()
	found := make(map[int]string)
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		env, err := os.ReadFile(dir + "/environ")
		if err != nil || !bytes.Contains(env, []byte("TAG="+tag+"\x00")) {
			continue
		}
		line, _ := os.ReadFile(dir + "/cmdline")
		pid, _ := strconv.Atoi(filepath.Base(dir))
		found[pid] = string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
	}
	return found
}

// waitTagged returns the processes with the tag once they are as ok wants, or go on as
// they are for longer than a busy machine takes to end them: what got SIGKILL a moment
// ago is still there.
func waitTagged(t *testing.T, tag string, ok func(map[int]string) bool) map[int]string {
	t.Helper()
	got := tagged(t, tag)
	for deadline := time.Now().Add(20 * time.Second); !ok(got) && time.Now().Before(deadline); got = tagged(t, tag) {
		time.Sleep(10 * time.Millisecond)
	}
	return got
}

// noneTagged fails the test if processes with the tag go on.
func noneTagged(t *testing.T, tag string) {
	t.Helper()
	if got := waitTagged(t, tag, func(left map[int]string) bool { return len(left) == 0 }); len(got) > 0 {
		t.Errorf("still run: %v", got)
	}
}

// noChildren fails the test if this process has a child, dead or alive.
func noChildren(t *testing.T) {
	t.Helper()
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if !errors.Is(err, unix.ECHILD) {
		t.Errorf("want no child, got one (%v, signal %d)", err, info.Signo)
	}
}

// overdue is a context whose deadline is over when the test says so.
type overdue struct {
	context.Context
	over chan struct{}
}

func (o overdue) Done() <-chan struct{} { return o.over }

func (o overdue) Err() error {
	select {
	case <-o.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestRunDeadline has programs that are over their time. Each says that it has
// come as far as it means to before its time ends, and those that SIGTERM can end
// get as long for it as a busy machine may take.
func TestRunDeadline(t *testing.T) {
	const ready = `echo >"$READY"; `
	for name, tt := range map[string]struct{ script, signal string }{
		"heeds":         {ready + "exec sleep 300", "SIGTERM"},
		"exits well":    {"trap 'exit 0' TERM; " + ready + "while :; do sleep 0.01; done", "SIGTERM"},
		"exits dynamic": {"trap 'exit 200' TERM; " + ready + "while :; do sleep 0.01; done", "SIGTERM"},
		"ignores":       {"trap '' TERM; " + ready + "while :; do sleep 300; done", "SIGKILL"},
		// Another process tells of one that has stopped.
		"stopped":        {`(until grep -q "^State:.T" /proc/$$/status; do sleep 0.01; done; ` + ready + `) & kill -STOP $$`, "SIGKILL"},
		"a tree":         {"(sleep 300; :) & (sleep 300 & wait) & " + ready + "sleep 300 | sleep 300; :", "SIGTERM"},
		"stubborn child": {`sh -c 'trap "" TERM; ` + ready + `sleep 300; :' & wait`, "SIGTERM"},
		"floods":         {ready + "exec yes", "SIGTERM"},
	} {
		t.Run(name, func(t *testing.T) {
			fifo := t.TempDir() + "/ready"
			if err := unix.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			c := shell(t, "echo begun; "+tt.script, "TAG="+tag(t), "READY="+fifo)
			if tt.signal == "SIGTERM" {
				c.grace = time.Minute
			}
			ctx := overdue{t.Context(), make(chan struct{})}
			var once sync.Once
			end := func() { once.Do(func() { close(ctx.over) }) }
			go func() {
				os.ReadFile(fifo) // returns once the script has written to it
				end()
			}()
			late := time.AfterFunc(time.Minute, func() { t.Error("the script says nothing"); end() })
			defer late.Stop()
			r, err := c.Run(ctx)
			want := "run /bin/sh: ended by " + tt.signal + ": context deadline exceeded"
			if err == nil || err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("want %q, got %v", want, err)
			}
			if !strings.HasPrefix(string(r.Output), "begun\n") || r.Code != 0 {
				t.Errorf("want the output and no exit status, got %+v", r)
			}
			noChildren(t)
			noneTagged(t, tag(t))
		})
	}
}

// TestRunWhole has a program that ignores SIGTERM, which comes before the deadline,
// and would have a minute for it if SIGKILL did not come at the deadline.
func TestRunWhole(t *testing.T) {
	c := shell(t, "trap '' TERM; echo begun; while :; do sleep 300; done", "TAG="+tag(t))
	c.spec.Whole, c.grace = true, time.Minute
	// A busy machine takes a while to begin, and to send a signal.
	for timeout := 2 * time.Second; ; timeout *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		early := false
		c.kill = func(group int, signal syscall.Signal) error {
			early = early || signal == unix.SIGTERM && ctx.Err() == nil
			return signalGroup(group, signal)
		}
		begun := time.Now()
		r, err := c.Run(ctx)
		took := time.Since(begun)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("want deadline exceeded, got %v", err)
		}
		if took > timeout+30*time.Second {
			t.Fatalf("with a deadline of %v: took %v", timeout, took)
		}
		if early && string(r.Output) == "begun\n" && strings.Contains(err.Error(), "ended by SIGKILL") {
			break
		}
		if timeout > 10*time.Second {
			t.Fatalf("want SIGTERM before %v and SIGKILL then, got %+v, %v, SIGTERM before %v", timeout, r, err, early)
		}
	}
	noChildren(t)
	noneTagged(t, tag(t))
}

// TestRunEndsGroup has a program that ends in time and leaves children: those in
// its group end with it, the one that left it lives on and holds up nothing.
func TestRunEndsGroup(t *testing.T) {
	fifo := t.TempDir() + "/fifo"
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	c := shell(t, `sleep 300 & setsid sh -c 'echo free >"$0"; exec sleep 299' "$0" & read x <"$0"; echo done`, "TAG="+tag(t))
	c.spec.Args = append(c.spec.Args, fifo)
	begun := time.Now()
	r, err := c.Run(within(t, 30*time.Second))
	if err != nil || string(r.Output) != "done\n" {
		t.Errorf("want done, got %+v, %v", r, err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the output that a daemon holds open held it up for %v", took)
	}
	noChildren(t)
	got := waitTagged(t, tag(t), alone)
	if !alone(got) {
		t.Errorf("want the daemon alone, got %v", got)
	}
	for pid := range got {
		unix.Kill(pid, unix.SIGKILL)
	}
}

// alone reports whether the daemon of TestRunEndsGroup is all that runs. It may not have
// come to its exec yet.
func alone(processes map[int]string) bool {
	for _, line := range processes {
		return len(processes) == 1 && line == "sleep 299 "
	}
	return false
}

func TestRunCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	c := shell(t, "exec sleep 300")
	for _, when := range []string{"under way", "already canceled"} {
		if _, err := c.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: want context canceled, got %v", when, err)
		}
	}
	noChildren(t)
}

// TestRunEndsAtDeadline has a program that ends just as its time is over, by
// itself or by SIGTERM. It is reaped, and the next run begins, every time.
func TestRunEndsAtDeadline(t *testing.T) {
	c := shell(t, "exec sleep 0.01")
	ended, killed := 0, 0
	for range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond+rand.N(15*time.Millisecond))
		_, err := c.Run(ctx)
		cancel()
		switch {
		case err == nil:
			ended++
		case errors.Is(err, ErrUnread): // the time was over before the shell was read
			<-c.unread.Load().done
		case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrStuck):
			killed++
		default:
			t.Fatal(err)
		}
	}
	t.Logf("%d ended, %d killed", ended, killed)
	if _, err := c.Run(t.Context()); err != nil {
		t.Errorf("the run after: %v", err)
	}
	noChildren(t)
}

// TestRunManyHang waits for many programs at once without a thread for each.
func TestRunManyHang(t *testing.T) {
	c := shell(t, "exec sleep 300")
	const n = 60
	before := filetest.Threads(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := c.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("want context canceled, got %v", err)
			}
		})
	}
	for deadline := time.Now().Add(20 * time.Second); children(t) < n && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if got := children(t); got != n {
		t.Errorf("want %d programs, got %d", n, got)
	}
	if got := filetest.Threads(t); got > before+n/2 {
		t.Errorf("%d threads before, %d with %d programs", before, got, n)
	}
	cancel()
	wg.Wait()
	noChildren(t)
}

// children counts the children of this process.
func children(t *testing.T) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		// The name in brackets may have anything in it.
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

// TestRunLeaksNothing has programs fail in every way and counts descriptors,
// goroutines, threads and processes.
func TestRunLeaksNothing(t *testing.T) {
	missing, err := New(Spec{Args: []string{"/nonexistent/program"}})
	if err != nil {
		t.Fatal(err)
	}
	masked := shell(t, "exit 1")
	masked.mask = true
	for name, tt := range map[string]struct {
		c       *Command
		n       int
		timeout time.Duration
	}{
		"exits":   {shell(t, "exit 1"), 1000, time.Minute},
		"masked":  {masked, 1000, time.Minute},
		"missing": {missing, 1000, time.Minute},
		"hangs":   {shell(t, "exec sleep 300"), 200, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			run := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				_, err := tt.c.Run(ctx)
				return err
			}
			run() // the poller and the like exist now
			fds, routines, threads := filetest.Descriptors(t), runtime.NumGoroutine(), filetest.Threads(t)
			for range tt.n {
				if err := run(); (err == nil) != (name == "exits" || name == "masked") {
					t.Fatal(err)
				}
			}
			// AfterFunc's and the thread's own last steps need a moment.
			for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				if runtime.NumGoroutine() <= routines && filetest.Threads(t) <= threads+5 {
					break
				}
			}
			if got := filetest.Descriptors(t); got != fds {
				t.Errorf("want %d descriptors as before, got %d", fds, got)
			}
			if got := runtime.NumGoroutine(); got > routines {
				t.Errorf("want %d goroutines as before, got %d", routines, got)
			}
			if got := filetest.Threads(t); got > threads+5 {
				t.Errorf("%d threads before, %d after", threads, got)
			}
			noChildren(t)
		})
	}
}
