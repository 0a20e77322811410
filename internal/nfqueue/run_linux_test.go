package nfqueue

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// TestNetnsRunEnds ends Run while it waits in poll, while it waits in a receive,
// and while packets come; then runs it again.
func TestNetnsRunEnds(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	ns := netnstest.New(t)
	u := newUDP(t, ns, "127.0.0.1", 1)
	q := open(t, ns, Config{})
	rule{ns: ns}.add(t)

	var ticks atomic.Int64
	start := func() (end func()) {
		return runTicks(t, q, markAll, func() bool { ticks.Add(1); return true })
	}
	idle := func() {
		n := ticks.Load()
		eventually(t, "idle ticks", func() bool { return ticks.Load() >= n+3 })
	}

	end := start()
	idle()
	if err := q.Run(t.Context(), Each(markAll), func() bool { return false }); err == nil {
		t.Error("two Run at a time: want an error")
	}
	end()

	end = start()
	expectMark(t, u, 0x101) // then it is in a receive
	end()

	end = start()
	for range 100 {
		u.write([]byte("x"))
	}
	end()
	// Run answered what waited.
	for range 100 {
		if _, mark := u.read(); mark != 0x101 {
			t.Errorf("want mark 0x101, got %#x", mark)
		}
	}

	end = start()
	idle()
	expectMark(t, u, 0x101)
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	end()
	if err := q.Run(t.Context(), Each(markAll), func() bool { return false }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Run after Close: want os.ErrClosed, got %v", err)
	}
	if err := q.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// TestNetnsRunTicks sees ticks while packets come without a break, on the thread
// of the handler.
func TestNetnsRunTicks(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	ns := netnstest.New(t)
	u := newUDP(t, ns, "127.0.0.1", 1)
	q := open(t, ns, Config{FailOpen: true})
	rule{ns: ns}.add(t)
	var handler, ticker, ticks atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	// Each packet is sent by the handler of the one before: the loop never finds
	// the queue empty.
	go func() {
		done <- q.Run(ctx, Each(func(p *Packet) Verdict {
			handler.Store(int64(unix.Gettid()))
			if _, err := u.send.Write([]byte("x")); err != nil {
				t.Error(err)
				cancel()
			}
			return Verdict{}
		}), func() bool {
			ticker.Store(int64(unix.Gettid()))
			ticks.Add(1)
			return false
		})
	}()
	u.write([]byte("x"))
	eventually(t, "a packet", func() bool { return handler.Load() != 0 })
	before := ticks.Load()
	eventually(t, "busy ticks", func() bool { return ticks.Load() >= before+3 })
	if handler.Load() != ticker.Load() {
		t.Errorf("handler on thread %d, tick on %d", handler.Load(), ticker.Load())
	}
	cancel() // each packet still sends one: Run must not answer for ever
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("Run did not end")
	}
}

// TestNetnsRunRests ticks rarely where there is nothing to do, and often again
// after a packet.
func TestNetnsRunRests(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	ns := netnstest.New(t)
	u := newUDP(t, ns, "127.0.0.1", 1)
	q := open(t, ns, Config{})
	rule{ns: ns}.add(t)
	ticks := make(chan time.Time, 10_000)
	stop := runTicks(t, q, markAll, func() bool { ticks <- time.Now(); return false })
	for range restAfter {
		<-ticks
	}
	last := <-ticks
	for range 3 {
		next := <-ticks
		if d := next.Sub(last); d < restInterval-tickInterval {
			t.Errorf("a tick after %v of rest", d)
		}
		last = next
	}
	// The machine may be slow once, but not each time.
	eventually(t, "frequent ticks after a packet", func() bool {
		expectMark(t, u, 0x101)
		<-ticks
		last := <-ticks
		return (<-ticks).Sub(last) < restInterval/2
	})
	stop()
}

// TestNetnsRunGarbage stops the world while the loop's thread is within a raw
// system call of 15 seconds: the runtime's signal ends it.
func TestNetnsRunGarbage(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	// The loop keeps one while it is in the system call, so that somebody sees it
	// there.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	ns := netnstest.New(t)
	u := newUDP(t, ns, "127.0.0.1", 1)
	q := open(t, ns, Config{})
	const timeout = 15 * time.Second
	if err := setReceiveTimeout(q.fd, timeout); err != nil {
		t.Fatal(err)
	}
	rule{ns: ns}.add(t)
	var thread atomic.Int64
	stop := run(t, q, func(p *Packet) Verdict { thread.Store(int64(unix.Gettid())); return markAll(p) })
	for range 5 {
		eventually(t, "receive", func() bool {
			if tid := thread.Load(); tid != 0 && inReceive(t, int(tid)) {
				return true
			}
			// Any signal sends the loop to poll, until there is a packet.
			expectMark(t, u, 0x101)
			return false
		})
		start := time.Now()
		runtime.GC()
		if d := time.Since(start); d >= timeout-time.Second {
			t.Fatalf("the garbage collector waited for the loop, %v", d)
		}
	}
	stop()
}

// inReceive says whether a thread of this process is within recvmmsg.
func inReceive(t *testing.T, tid int) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(tid) + "/syscall")
	if err != nil {
		t.Fatal(err)
	}
	return strings.HasPrefix(string(b), strconv.Itoa(unix.SYS_RECVMMSG)+" ")
}

// TestNetnsRunCut receives into buffers that are too short for a message: the
// packet goes on without a mark.
func TestNetnsRunCut(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	ns := netnstest.New(t)
	u := newUDP(t, ns, "127.0.0.1", 1)
	q := open(t, ns, Config{})
	q.bufferSize = 60
	rule{ns: ns}.add(t)
	stop := run(t, q, markAll)
	expectMark(t, u, 1)
	stop()
	if s := q.Stats(); s.Malformed != 1 || s.Verdicts != 1 {
		t.Errorf("stats %+v", s)
	}
}

// TestNetnsRunAllocates counts the allocations of a packet's way through the
// loop.
func TestNetnsRunAllocates(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	ns := netnstest.New(t)
	u := newUDP(t, ns, "127.0.0.1", 1)
	q := open(t, ns, Config{})
	rule{ns: ns}.add(t)
	l := &loop{q: q, batch: newBatch(q.bufferSize), handler: Each(markAll)}
	b := []byte("x")
	if n := testing.AllocsPerRun(100, func() {
		u.write(b)
		if !l.poll(patience) { // a busy kernel hands it over later
			t.Fatal("no packet")
		}
		if n, err := l.once(unix.MSG_DONTWAIT); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestNetnsOpenPermission opens a queue from a thread without CAP_NET_ADMIN.
func TestNetnsOpenPermission(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	ns := netnstest.New(t)
	err := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		if e := errors.Join(unix.Setns(ns.FD(), unix.CLONE_NEWNET), dropNetAdmin()); e != nil {
			err <- e
			return
		}
		_, e := Open(Config{Number: testQueue, NetNS: -1})
		err <- e
	}()
	if err := <-err; !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("want a missing permission, got %v", err)
	}
	if queues, err := Kernel(ns.FD()); len(queues) != 0 || err != nil {
		t.Errorf("queues %v, %v", queues, err)
	}
}

// dropNetAdmin takes CAP_NET_ADMIN from the thread.
func dropNetAdmin() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	return unix.Capset(&header, &data[0])
}
