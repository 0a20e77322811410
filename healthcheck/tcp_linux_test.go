package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// loopbacks are the addresses of each family to test on.
var loopbacks = []string{"127.0.0.1", "::1"}

func listen(t testing.TB, ip string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func target(ln net.Listener) netip.AddrPort { return ln.Addr().(*net.TCPAddr).AddrPort() }

// fullListener listens with a queue that is full, so that the kernel drops
// every further SYN.
func fullListener(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	ln := listen(t, ip)
	fillQueue(t, ln, func() (net.Conn, error) { return net.DialTimeout("tcp", ln.Addr().String(), 20*time.Second) })
	return target(ln)
}

// fillQueue makes the queue of ln as short as can be, and dials once, which fills it.
func fillQueue(t *testing.T, ln net.Listener, dial func() (net.Conn, error)) {
	t.Helper()
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) }); err != nil {
		t.Fatal(err)
	}
	c, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	// The client may have its connection before it is in the queue. Of a listener the
	// kernel says here how many are in there, and how many may be.
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		var info *unix.TCPInfo
		raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
		if err != nil {
			t.Fatal(err)
		}
		if info.Unacked > info.Sacked {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections wait, which is not more than %d", info.Unacked, info.Sacked)
		}
	}
}

// refusing returns an address that nobody listens on, nor can until the test ends.
func refusing(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	domain, sa := socketAddress(netip.AddrPortFrom(netip.MustParseAddr(ip), 0))
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, sa); err != nil {
		t.Fatal(err)
	}
	self, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return addrPort(self)
}

func check(t *testing.T, ctx context.Context, target netip.AddrPort, env Env) (Result, error) {
	t.Helper()
	c, err := TCP{}.NewChecker(target, env)
	if err != nil {
		t.Fatal(err)
	}
	return c.Check(ctx)
}

func TestTCPHealthy(t *testing.T) {
	for _, ip := range loopbacks {
		r, err := check(t, t.Context(), target(listen(t, ip)), Env{})
		if err != nil || r.Detail != "connected" || r.Latency <= 0 {
			t.Errorf("%s: want connected, got %+v, %v", ip, r, err)
		}
	}
}

// TestTCPMapped gives a v4 target in its v6 form.
func TestTCPMapped(t *testing.T) {
	to := target(listen(t, "127.0.0.1"))
	mapped := netip.AddrPortFrom(netip.AddrFrom16(to.Addr().As16()), to.Port())
	if _, err := check(t, t.Context(), mapped, Env{}); err != nil {
		t.Errorf("%v: %v", mapped, err)
	}
}

func TestTCPRefused(t *testing.T) {
	for _, ip := range loopbacks {
		to := refusing(t, ip)
		r, err := check(t, t.Context(), to, Env{})
		want := fmt.Sprintf("connect %v: connection refused", to)
		if err == nil || err.Error() != want || !errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, ErrLocal) {
			t.Errorf("%s: want %q, got %v", ip, want, err)
		}
		if r.Latency <= 0 {
			t.Errorf("%s: want a latency, got %+v", ip, r)
		}
	}
}

func TestTCPDeadline(t *testing.T) {
	for _, ip := range loopbacks {
		to := fullListener(t, ip)
		want := fmt.Sprintf("connect %v: no answer in time: context deadline exceeded", to)
		// A busy machine has a check return late, but not five.
		late := time.Hour
		for tries := 0; tries < 5 && late > time.Second; tries++ {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, err := check(t, ctx, to, Env{})
			deadline, _ := ctx.Deadline()
			late = time.Since(deadline)
			cancel()
			if err == nil || err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: want %q, got %v", ip, want, err)
			}
		}
		if late < 0 || late > time.Second {
			t.Errorf("%s: want it to return at its deadline, got %v after it", ip, late)
		}
	}
}

func TestTCPCancel(t *testing.T) {
	to := fullListener(t, "127.0.0.1")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := check(t, ctx, to, Env{}); !errors.Is(err, context.Canceled) {
		t.Errorf("want context canceled, got %v", err)
	}
	if _, err := check(t, ctx, to, Env{}); !errors.Is(err, context.Canceled) {
		t.Errorf("already canceled: got %v", err)
	}
}

// TestTCPUnseen proves that the application behind the target does not notice a
// thousand checks. The kernel holds an ACK back for 40 ms only; so a few that
// this process took longer for, on a busy machine, are no fault.
func TestTCPUnseen(t *testing.T) {
	for _, ip := range loopbacks {
		ln := listen(t, ip)
		for i := range 1000 {
			if _, err := check(t, t.Context(), target(ln), Env{}); err != nil {
				t.Fatalf("%s: check %d: %v", ip, i, err)
			}
		}
		ln.(*net.TCPListener).SetDeadline(time.Now().Add(100 * time.Millisecond))
		seen := 0
		var err error
		for err == nil {
			var c net.Conn
			if c, err = ln.Accept(); err == nil {
				c.Close()
				seen++
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: accept: %v", ip, err)
		}
		if seen > 10 {
			t.Errorf("%s: the application was given %d of 1000 connections", ip, seen)
		}
	}
}

func TestTCPEnter(t *testing.T) {
	to := target(listen(t, "127.0.0.1"))
	entered := 0
	env := Env{Enter: func(create func() error) error { entered++; return create() }}
	if _, err := check(t, t.Context(), to, env); err != nil || entered != 1 {
		t.Errorf("want one entry, got %d, %v", entered, err)
	}

	gone := errors.New("namespace is gone")
	before := descriptors(t)
	for _, create := range []bool{false, true} {
		env.Enter = func(f func() error) error {
			if create { // the way back fails
				if err := f(); err != nil {
					return err
				}
			}
			return gone
		}
		_, err := check(t, t.Context(), to, env)
		want := fmt.Sprintf("connect %v: create socket: namespace is gone (fault of this host)", to)
		if err == nil || err.Error() != want || !errors.Is(err, gone) || !errors.Is(err, ErrLocal) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if got := descriptors(t); got != before {
		t.Errorf("want %d descriptors, got %d", before, got)
	}
}

// TestTCPLocalFaults names the faults of the own host and marks them.
func TestTCPLocalFaults(t *testing.T) {
	to := target(listen(t, "127.0.0.1"))
	env := Env{Enter: func(func() error) error { return os.NewSyscallError("socket", unix.EMFILE) }}
	_, err := check(t, t.Context(), to, env)
	want := fmt.Sprintf("connect %v: create socket: socket: too many open files: lbd's limit of open files (fault of this host)", to)
	if err == nil || err.Error() != want || !errors.Is(err, ErrLocal) || !errors.Is(err, unix.EMFILE) {
		t.Errorf("want %q, got %v", want, err)
	}
}

// TestTCPNeeds says which privilege a namespace, a mark and an interface take.
func TestTCPNeeds(t *testing.T) {
	to := target(listen(t, "127.0.0.1"))
	env := Env{Enter: func(func() error) error { return os.NewSyscallError("setns", unix.EPERM) }}
	_, err := check(t, t.Context(), to, env)
	want := fmt.Sprintf("connect %v: create socket: setns: operation not permitted (needs CAP_SYS_ADMIN) (fault of this host)", to)
	if err == nil || err.Error() != want || !errors.Is(err, ErrLocal) || !errors.Is(err, unix.EPERM) {
		t.Errorf("want %q, got %v", want, err)
	}
	if err := needs("CAP_NET_ADMIN", unix.ENODEV); err != unix.ENODEV {
		t.Errorf("want another error as it is, got %v", err)
	}
}

// TestTCPCloseOnExec looks at the socket from inside Enter's reach, right after
// its creation.
func TestTCPCloseOnExec(t *testing.T) {
	var flags atomic.Int64
	flags.Store(-1)
	before := openDescriptors(t)
	env := Env{Enter: func(create func() error) error {
		if err := create(); err != nil {
			return err
		}
		for fd := range openDescriptors(t) {
			if _, ok := before[fd]; !ok {
				if f, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
					flags.Store(int64(f))
				}
			}
		}
		return nil
	}}
	if _, err := check(t, t.Context(), target(listen(t, "127.0.0.1")), env); err != nil {
		t.Fatal(err)
	}
	if got := flags.Load(); got != unix.FD_CLOEXEC {
		t.Errorf("want FD_CLOEXEC on the socket, got flags %d", got)
	}
}

// TestTCPLeaksNothing makes a thousand checks with every outcome and counts
// descriptors, goroutines and threads.
func TestTCPLeaksNothing(t *testing.T) {
	targets := map[string]netip.AddrPort{
		"accepting": target(listen(t, "127.0.0.1")),
		"refusing":  refusing(t, "127.0.0.1"),
		"hanging":   fullListener(t, "127.0.0.1"),
	}
	// Warm up, so that the poller and the like exist.
	for _, to := range targets {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		check(t, ctx, to, Env{})
		cancel()
	}
	for name, to := range targets {
		nothingLeaks(t, name, func() { checkAtOnce(t, name, to) })
	}
}

// checkAtOnce makes a thousand checks at once.
func checkAtOnce(t *testing.T, name string, to netip.AddrPort) {
	t.Helper()
	const n = 1000
	done := make(chan error, n)
	for range n {
		go func() {
			c, err := TCP{}.NewChecker(to, Env{})
			if err == nil {
				// A busy machine must not fail the ones that answer.
				timeout := 30 * time.Second
				if name == "hanging" {
					timeout = 300 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				defer cancel()
				_, err = c.Check(ctx)
			}
			done <- err
		}()
	}
	failed := 0
	for range n {
		if err := <-done; err != nil {
			failed++
		}
	}
	if want := map[string]int{"accepting": 0, "refusing": n, "hanging": n}[name]; failed != want {
		t.Errorf("%s: want %d failures, got %d", name, want, failed)
	}
}

func openDescriptors(t *testing.T) map[int]struct{} {
	t.Helper()
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		t.Fatal(err)
	}
	fds := make(map[int]struct{})
	for _, name := range names {
		var fd int
		if _, err := fmt.Sscan(name, &fd); err != nil {
			t.Fatal(err)
		}
		if fd != int(dir.Fd()) {
			fds[fd] = struct{}{}
		}
	}
	return fds
}

func descriptors(t *testing.T) int {
	t.Helper()
	return len(openDescriptors(t))
}

func countThreads(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nThreads:")
	var n int
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
