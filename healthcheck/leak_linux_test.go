package healthcheck

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// nothingLeaks calls f and wants as many descriptors and goroutines as before, and
// no more than a few new threads.
func nothingLeaks(t *testing.T, name string, f func()) {
	t.Helper()
	fds, routines, threads := descriptors(t), runtime.NumGoroutine(), countThreads(t)
	f()
	// Goroutines that are done need a moment to end.
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > routines && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if got := runtime.NumGoroutine(); got > routines {
		t.Errorf("%s: want %d goroutines as before, got %d", name, routines, got)
	}
	if got := descriptors(t); got != fds {
		t.Errorf("%s: want %d descriptors as before, got %d", name, fds, got)
	}
	if got := countThreads(t); got > threads+50 {
		t.Errorf("%s: %d threads before, %d after", name, threads, got)
	}
}

// fill listens on port 82 of every address with a queue that is full, so that
// connections hang.
func fill(t *testing.T, ns *netnstest.NS) {
	t.Helper()
	ln := ns.Listen("tcp", "0.0.0.0:82")
	fillQueue(t, ln, func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return ns.DialContext(ctx, "tcp", "127.0.0.1:82")
	})
}

// TestNetnsViaLeaksNothing dials a thousand times with every outcome.
func TestNetnsViaLeaksNothing(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	accepting := target(ns.Listen("tcp", "127.0.0.1:80"))
	fill(t, ns)
	tests := []struct {
		name    string
		via     Via
		env     Env
		network string
		target  netip.AddrPort
		cancel  bool
		fails   bool
	}{
		{"accepting", Via{}, Env{Enter: ns.Do}, "tcp", accepting, false, false},
		{"accepting, by namespace", Via{NetNS: ns.Path()}, Env{}, "tcp", accepting, false, false},
		{"udp", Via{}, Env{Enter: ns.Do}, "udp", accepting, false, false},
		{"refusing", Via{}, Env{Enter: ns.Do}, "tcp", netip.MustParseAddrPort("127.0.0.1:81"), false, true},
		{"no route", Via{}, Env{Enter: ns.Do}, "tcp", netip.MustParseAddrPort("192.0.2.1:80"), false, true},
		{"no source", Via{Source: netip.MustParseAddr("192.0.2.1")}, Env{Enter: ns.Do}, "tcp", accepting, false, true},
		{"no interface", Via{Interface: "eth7"}, Env{Enter: ns.Do}, "udp", accepting, false, true},
		{"no namespace", Via{NetNS: "/dev/null"}, Env{}, "tcp", accepting, false, true},
		{"cancelled", Via{}, Env{Enter: ns.Do}, "tcp", accepting, true, true},
		{"hanging", Via{}, Env{Enter: ns.Do}, "tcp", netip.MustParseAddrPort("127.0.0.1:82"), false, true},
	}
	for _, tt := range tests {
		nothingLeaks(t, tt.name, func() {
			var dials sync.WaitGroup
			for range 10 {
				dials.Go(func() {
					for range 100 {
						timeout := 30 * time.Second
						if tt.name == "hanging" {
							timeout = time.Millisecond
						}
						ctx, cancel := context.WithTimeout(t.Context(), timeout)
						if tt.cancel {
							cancel()
						}
						c, err := tt.via.Dial(ctx, tt.env, tt.network, tt.target)
						cancel()
						if (err != nil) != tt.fails {
							t.Errorf("%s: want failed %v, got %v", tt.name, tt.fails, err)
						}
						if err == nil {
							CloseAbort(c)
						}
					}
				})
			}
			dials.Wait()
		})
	}
}

// TestNetnsMonitorManyThreads runs ten thousand probes in another namespace, a
// thousand of which hang: they take no thread each, neither while they enter the
// namespace nor while they wait.
func TestNetnsMonitorManyThreads(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	ns.Listen("tcp", "0.0.0.0:80")
	fill(t, ns)
	const n = 10_000
	var probes []Probe
	for i := range n {
		port := 80
		if i%10 == 0 {
			port = 82
		}
		probes = append(probes, Probe{
			Method: TCP{},
			Target: netip.MustParseAddrPort(fmt.Sprintf("127.%d.%d.1:%d", i>>8, i&255, port)),
			Timing: Timing{Interval: 2 * time.Second, Timeout: 2 * time.Second, Rise: 1, Fall: 1},
		})
	}
	nothingLeaks(t, "10,000 probes", func() {
		m := New(Options{Env: Env{Enter: ns.Do}})
		if err := m.Set(probes); err != nil {
			t.Fatal(err)
		}
		before, most := countThreads(t), 0
		stop := run(t, m)
		deadline := time.Now().Add(30 * time.Second)
		for m.Stats().Checks < n && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
			most = max(most, countThreads(t))
		}
		stop()
		if s := m.Stats(); s.Checks < n {
			t.Errorf("want every probe checked, got %+v", s)
		}
		if most > before+30 {
			t.Errorf("%d threads before, %d while %d probes ran", before, most, n)
		}
	})
}

// TestMonitorEntersFew has a namespace that takes its time to enter: each thread
// that does so is locked, and the runtime ends the process at 10,000.
func TestMonitorEntersFew(t *testing.T) {
	to := target(listen(t, "127.0.0.1"))
	var mu sync.Mutex
	inside, most := 0, 0
	count := func(d int) {
		mu.Lock()
		defer mu.Unlock()
		inside += d
		most = max(most, inside)
	}
	m := New(Options{Env: Env{Enter: func(create func() error) error {
		count(1)
		defer count(-1)
		time.Sleep(time.Millisecond)
		return create()
	}}})
	var probes []Probe
	for i := range 200 {
		probes = append(probes, Probe{
			Method: TCP{}, Target: to,
			Timing: Timing{Interval: 10 * time.Second, Timeout: 10*time.Second - time.Duration(i), Rise: 1, Fall: 1},
		})
	}
	if err := m.Set(probes); err != nil {
		t.Fatal(err)
	}
	stop := run(t, m)
	deadline := time.Now().Add(10 * time.Second)
	for m.Stats().Checks < uint64(len(probes)) && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	stop()
	if s := m.Stats(); s.Checks < uint64(len(probes)) || s.Failures > 0 {
		t.Errorf("want every probe checked, got %+v", s)
	}
	if most == 0 || most > enterAtOnce {
		t.Errorf("want at most %d in the namespace at once, got %d", enterAtOnce, most)
	}
}
