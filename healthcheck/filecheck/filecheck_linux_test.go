package filecheck

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
)

func checkerOf(t *testing.T, path string) healthcheck.Checker {
	t.Helper()
	c, err := Check{Path: path}.NewChecker(netip.AddrPort{}, healthcheck.Env{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCheck follows a file through its changes.
func TestCheck(t *testing.T) {
	path := t.TempDir() + "/weight"
	c := checkerOf(t, path)
	fails := func(want string) {
		t.Helper()
		r, err := c.Check(t.Context())
		if err == nil || err.Error() != "file "+path+": "+want || r.Advice != (healthcheck.Advice{}) {
			t.Errorf("want %q and no advice, got %+v, %v", want, r, err)
		}
	}
	says := func(detail string, want healthcheck.Weight) {
		t.Helper()
		r, err := c.Check(t.Context())
		if err != nil || r.Detail != detail || r.Advice != (healthcheck.Advice{Weight: want}) {
			t.Errorf("want %q and %+v, got %+v, %v", detail, want, r, err)
		}
	}
	fails("no such file or directory")
	write(t, path, "42\n")
	says("weight 42", healthcheck.Weight{Kind: healthcheck.WeightAbsolute, Value: 42})
	says("weight 42", healthcheck.Weight{Kind: healthcheck.WeightAbsolute, Value: 42})
	write(t, path, "50%")
	says("weight 50%", healthcheck.Weight{Kind: healthcheck.WeightPercent, Value: 50})
	write(t, path, "")
	fails("is empty")
	write(t, path, "secret\n")
	fails("holds no number")
	write(t, path, strings.Repeat(" ", 62)+"7\n")
	says("weight 7", healthcheck.Weight{Kind: healthcheck.WeightAbsolute, Value: 7})
	write(t, path, strings.Repeat(" ", 63)+"7\n")
	fails("is longer than 64 bytes")
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	fails("is longer than 64 bytes")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	// Where the number really is, as with a mounted config map.
	write(t, path+".1", "1")
	if err := os.Symlink(path+".1", path); err != nil {
		t.Fatal(err)
	}
	says("weight 1", healthcheck.Weight{Kind: healthcheck.WeightAbsolute, Value: 1})
	if err := os.Remove(path + ".1"); err != nil {
		t.Fatal(err)
	}
	fails("no such file or directory")
}

// kinds makes files that are none to read, and what reading them says.
func kinds(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	for link, to := range map[string]string{"/loop": "loop", "/zero": "/dev/zero", "/link": "fifo"} {
		if err := os.Symlink(to, dir+link); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir+"/full", strings.Repeat("1", 65))
	write(t, dir+"/bad", "bad")
	return map[string]string{
		dir:                 "is not a regular file",
		dir + "/fifo":       "is not a regular file",
		dir + "/link":       "is not a regular file",
		dir + "/socket":     "is not a regular file",
		dir + "/zero":       "is not a regular file",
		"/dev/null":         "is not a regular file",
		dir + "/loop":       syscall.ELOOP.Error(),
		dir + "/none":       syscall.ENOENT.Error(),
		dir + "/bad/weight": syscall.ENOTDIR.Error(),
		dir + "/full":       "is longer than 64 bytes",
		dir + "/bad":        "holds no number",
		"/proc/self/stat":   "is longer than 64 bytes",
	}
}

func TestCheckKinds(t *testing.T) {
	for path, want := range kinds(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			done := make(chan error, 1)
			go func() {
				_, err := checkerOf(t, path).Check(context.Background())
				done <- err
			}()
			select {
			case err := <-done:
				if err == nil || err.Error() != "file "+path+": "+want {
					t.Errorf("want %q, got %v", want, err)
				}
			case <-time.After(20 * time.Second):
				t.Error("blocks")
			}
		})
	}
}

// TestCheckNeverOpens has a FIFO with a writer that waits for anybody to open it.
func TestCheckNeverOpens(t *testing.T) {
	path := t.TempDir() + "/fifo"
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		f.Close()
		opened <- err
	}()
	for range 100 {
		if _, err := checkerOf(t, path).Check(t.Context()); err == nil {
			t.Fatal("want an error")
		}
		select {
		case err := <-opened:
			t.Fatalf("the check opened the FIFO: its writer was let in (%v)", err)
		case <-time.After(time.Millisecond):
		}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// TestCheckLeased has a file that another process holds a lease on: opening it
// would wait for that process.
func TestCheckLeased(t *testing.T) {
	path := t.TempDir() + "/weight"
	write(t, path, "42")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// The kernel breaks the lease with SIGIO.
	signal.Ignore(unix.SIGIO)
	defer signal.Reset(unix.SIGIO)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	_, err = checkerOf(t, path).Check(t.Context())
	if !errors.Is(err, syscall.EWOULDBLOCK) || time.Since(begun) > 10*time.Second {
		t.Errorf("want %v at once, got %v after %v", syscall.EWOULDBLOCK, err, time.Since(begun))
	}
}

func TestCheckCanceled(t *testing.T) {
	path := t.TempDir() + "/weight"
	write(t, path, "42")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := checkerOf(t, path).Check(ctx); !errors.Is(err, context.Canceled) || r.Advice != (healthcheck.Advice{}) {
		t.Errorf("want context canceled, got %+v, %v", r, err)
	}
}

func TestNewCheckerErrors(t *testing.T) {
	for _, path := range []string{"", "weight", "./weight", "/a\x00b"} {
		if _, err := (Check{Path: path}).NewChecker(netip.AddrPort{}, healthcheck.Env{}); err == nil || !strings.HasSuffix(err.Error(), "is not an absolute path") {
			t.Errorf("%q: got %v", path, err)
		}
	}
}

func TestKey(t *testing.T) {
	if got, want := (Check{Path: "/run/a b"}).Key(), `file path="/run/a b"`; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	if got, want := (Check{Path: "/a", Multiplier: -2}).Key(), `file path="/a" multiplier=-2`; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}

// TestCheckChange has a file that changes the weight, and one that fails.
func TestCheckChange(t *testing.T) {
	path := t.TempDir() + "/change"
	c, err := Check{Path: path, Multiplier: -2}.NewChecker(netip.AddrPort{}, healthcheck.Env{})
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "21\n")
	r, err := c.Check(t.Context())
	want := healthcheck.Advice{Weight: healthcheck.Weight{Kind: healthcheck.WeightLess, Value: 42}}
	if err != nil || r.Detail != "weight -42" || r.Advice != want {
		t.Errorf("want weight -42, got %+v, %v", r, err)
	}
	write(t, path, "2147483647")
	if r, err := c.Check(t.Context()); err == nil || r.Advice != (healthcheck.Advice{}) {
		t.Errorf("want an error and no advice, got %+v, %v", r, err)
	}
	for _, m := range []int{-65536, 65536} {
		if _, err := (Check{Path: path, Multiplier: m}).NewChecker(netip.AddrPort{}, healthcheck.Env{}); err == nil {
			t.Errorf("multiplier %d: want an error", m)
		}
	}
}

// TestCheckLeaksNothing fails a thousand times in every way.
func TestCheckLeaksNothing(t *testing.T) {
	paths := kinds(t)
	descriptors := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	fds, routines := descriptors(), runtime.NumGoroutine()
	for path := range paths {
		c := checkerOf(t, path)
		for range 1000 {
			if _, err := c.Check(t.Context()); err == nil || errors.Is(err, fs.ErrPermission) {
				t.Fatalf("%s: got %v", path, err)
			}
		}
	}
	if got := descriptors(); got != fds {
		t.Errorf("want %d descriptors as before, got %d", fds, got)
	}
	if got := runtime.NumGoroutine(); got > routines {
		t.Errorf("want %d goroutines as before, got %d", routines, got)
	}
}
