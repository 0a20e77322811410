package icmpcheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/filetest"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// without runs f on a thread without a capability.
func without(capability int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var before [2]unix.CapUserData
	if err := unix.Capget(&header, &before[0]); err != nil {
		return err
	}
	after := before
	after[capability/32].Effective &^= 1 << (capability % 32)
	if err := unix.Capset(&header, &after[0]); err != nil {
		return err
	}
	err := f()
	if back := unix.Capset(&header, &before[0]); back != nil {
		panic(back) // rather than run on like this
	}
	return err
}

// unprivileged is an Env in a namespace where raw sockets are refused.
func unprivileged(ns *netnstest.NS) healthcheck.Env {
	return healthcheck.Env{Enter: func(create func() error) error {
		return ns.Do(func() error { return without(unix.CAP_NET_RAW, create) })
	}}
}

// TestNetnsUnprivileged pings without CAP_NET_RAW where the sysctl allows it, and
// says what is missing where it does not.
func TestNetnsUnprivileged(t *testing.T) {
	l := newLab(t)
	env := unprivileged(l.lb)
	tests := []struct{ to, want string }{
		{"10.0.1.2", ""},
		{"fd00:1::2", ""},
		{"127.0.0.1", ""},
		{"192.0.2.1", "ping 192.0.2.1: host unreachable, says 10.0.0.254"},
		{"2001:db8:1::1", "ping 2001:db8:1::1: no route to destination, says fd00::fe"},
	}
	for _, allowed := range []bool{true, false} {
		if allowed {
			l.lb.SetSysctl("net.ipv4.ping_group_range", fmt.Sprintf("%d %[1]d", os.Getgid()))
		} else {
			l.lb.SetSysctl("net.ipv4.ping_group_range", "1 0")
		}
		for _, tt := range tests {
			want := tt.want
			if !allowed {
				want = "ping " + tt.to + ": create socket: socket: permission denied (fault of this host): " +
					"needs CAP_NET_RAW, or lbd's group within net.ipv4.ping_group_range"
			}
			_, err := check(t, long, env, Check{}, tt.to)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != want || errors.Is(err, healthcheck.ErrLocal) == allowed {
				t.Errorf("%s: want %q, got %q", tt.to, want, got)
			}
		}
	}
}

// TestNetnsUnprivilegedSize has the requests of an unprivileged socket divided
// too, as far as a router allows for.
func TestNetnsUnprivilegedSize(t *testing.T) {
	l := newLab(t)
	l.lb.SetSysctl("net.ipv4.ping_group_range", fmt.Sprintf("%d %[1]d", os.Getgid()))
	l.run(t, l.router, "ip", "link", "set", "hosts", "mtu", "1300")
	l.run(t, l.host, "ip", "link", "set", "eth0", "mtu", "1300")
	for _, to := range []string{"10.0.1.2", "fd00:1::2"} {
		for _, size := range []int{8, 1400, 4000} {
			if _, err := check(t, long, unprivileged(l.lb), Check{Size: size}, to); err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
	}
}

// TestNetnsLeaksNothing makes a thousand checks that fail in each way and counts
// descriptors, goroutines and threads.
func TestNetnsLeaksNothing(t *testing.T) {
	l := newLab(t)
	tests := []struct {
		name, to string
		timeout  time.Duration
		env      healthcheck.Env
		want     error
	}{
		{"black hole", "198.51.100.1", 50 * time.Millisecond, healthcheck.Env{Enter: l.lb.Do}, context.DeadlineExceeded},
		{"black hole", "2001:db8:2::1", 50 * time.Millisecond, healthcheck.Env{Enter: l.lb.Do}, context.DeadlineExceeded},
		{"unreachable", "192.0.2.1", long, healthcheck.Env{Enter: l.lb.Do}, unix.EHOSTUNREACH},
		{"unreachable", "2001:db8:1::1", long, healthcheck.Env{Enter: l.lb.Do}, unix.ENETUNREACH},
		{"refused", "10.0.1.2", long, unprivileged(l.lb), healthcheck.ErrLocal},
	}
	for _, tt := range tests {
		// Each at a target of its own, as the checks of a Monitor are.
		to := netip.MustParseAddr(tt.to)
		next := func() func() error {
			k, err := Check{}.NewChecker(netip.AddrPortFrom(to, 0), tt.env)
			if err != nil {
				t.Fatal(err)
			}
			if to = to.Next(); to.As16()[15] == 200 {
				to = netip.MustParseAddr(tt.to)
			}
			return func() error {
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				_, err := k.Check(ctx)
				return err
			}
		}
		if err := next()(); !errors.Is(err, tt.want) { // warm up
			t.Fatalf("%s, %s: want %v, got %v", tt.name, tt.to, tt.want, err)
		}
		fds, routines, threads := filetest.Descriptors(t), runtime.NumGoroutine(), filetest.Threads(t)
		const n, parallel = 1000, 50
		failed, slots := make(chan error, n), make(chan struct{}, parallel)
		for range n {
			slots <- struct{}{}
			one := next()
			go func() {
				defer func() { <-slots }()
				failed <- one()
			}()
		}
		for range n {
			if err := <-failed; !errors.Is(err, tt.want) {
				t.Fatalf("%s, %s: want %v, got %v", tt.name, tt.to, tt.want, err)
			}
		}
		if got := filetest.Descriptors(t); got != fds {
			t.Errorf("%s, %s: %d descriptors before, %d after", tt.name, tt.to, fds, got)
		}
		// The goroutines above and those of contexts need a moment to end.
		deadline := time.Now().Add(10 * time.Second)
		for runtime.NumGoroutine() > routines && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if got := runtime.NumGoroutine(); got > routines {
			t.Errorf("%s, %s: %d goroutines before, %d after", tt.name, tt.to, routines, got)
		}
		if got := filetest.Threads(t); got > threads+50 {
			t.Errorf("%s, %s: %d threads before, %d after", tt.name, tt.to, threads, got)
		}
	}
}

// TestNetnsCancel ends a check that waits.
func TestNetnsCancel(t *testing.T) {
	l := newLab(t)
	for _, to := range []string{"198.51.100.1", "2001:db8:2::1"} {
		k, err := Check{}.NewChecker(netip.AddrPortFrom(netip.MustParseAddr(to), 0), healthcheck.Env{Enter: l.lb.Do})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		for _, when := range []string{"while it waits", "before"} {
			if _, err := k.Check(ctx); !errors.Is(err, context.Canceled) || err.Error() != "ping "+to+": context canceled" {
				t.Errorf("canceled %s: got %v", when, err)
			}
		}
	}
}

// TestNetnsConcurrent pings one host a thousand times at once: every check gets
// its own reply.
func TestNetnsConcurrent(t *testing.T) {
	l := newLab(t)
	for _, to := range []string{"10.0.1.2", "fd00:1::2"} {
		const n = 1000
		done := make(chan error, n)
		for range n {
			go func() {
				_, err := l.check(t, long, Check{}, to)
				done <- err
			}()
		}
		for range n {
			if err := <-done; err != nil {
				t.Errorf("%s: %v", to, err)
			}
		}
	}
}
