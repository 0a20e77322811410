package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// serviceManager returns the socket that lbd's messages come to.
func serviceManager(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return c
}

// The messages as systemd gets them.
func TestNotify(t *testing.T) {
	c := serviceManager(t)
	n := newNotifier(slog.New(slog.DiscardHandler))
	n.ready()
	n.say("2 virtual services\nREADY=0")
	n.say("2 virtual services\nREADY=0")
	n.reloading()
	n.watchdog()
	n.stopping()

	var got []string
	buf := make([]byte, 4096)
	for range 5 {
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		k, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, regexp.MustCompile(`MONOTONIC_USEC=[1-9]\d*$`).ReplaceAllString(string(buf[:k]), "MONOTONIC_USEC=N"))
	}
	want := []string{"READY=1", "STATUS=2 virtual services READY=0", "RELOADING=1\nMONOTONIC_USEC=N", "WATCHDOG=1", "STOPPING=1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// A service manager that has room hears also of an lbd whose time is up, as on a
// busy host; one that has none is not waited for.
func TestNotifyLate(t *testing.T) {
	serviceManager(t)
	for n := 0; ; n++ {
		err := send("READY=1", 0)
		if err == nil && n < 1e5 {
			continue
		}
		if n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after %d messages: %v, want %v once there is no room", n, err, os.ErrDeadlineExceeded)
		}
		return
	}
}

// READY waits for the first pass that succeeds.
func TestReadiness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.table.SetAvailable(false)
		p := r.start(conf(service(vip, server(rs2, 3))))
		after(time.Minute)
		if got := r.noticed(); strings.Contains(got, "READY=1") || !strings.Contains(got, "STATUS=starting") {
			t.Errorf("without IPVS: want no READY and a STATUS, got\n%s", got)
		}
		r.table.SetAvailable(true)
		after(retryMax)
		if got := r.noticed(); !strings.Contains(got, "READY=1") {
			t.Errorf("with IPVS: want READY, got\n%s", got)
		}
		p.kill()
		if got := r.noticed(); !strings.HasSuffix(got, "STOPPING=1") {
			t.Errorf("in the end: want STOPPING, got\n%s", got)
		}
	})
}

// The watchdog is fed while both heartbeats are young, and not by a stuck owner.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, r.checked(rs2, 3))))
		const limit = 30 * time.Second
		after(10 * time.Minute)
		if who := p.stuck(time.Now(), limit); who != "" {
			t.Errorf("stuck after 10 quiet minutes: want nothing, got %s", who)
		}
		release := make(chan struct{})
		go func() { p.owner.requests <- func(context.Context) { <-release } }()
		after(limit + time.Second)
		if who := p.stuck(time.Now(), limit); who != "owner of the table" {
			t.Errorf("stuck with a stuck owner: want it named, got %q", who)
		}
		close(release)
		after(time.Second)
		if who := p.stuck(time.Now(), limit); who != "" {
			t.Errorf("stuck after the owner went on: want nothing, got %s", who)
		}
		p.kill()
		after(limit + time.Second)
		if who := p.stuck(time.Now(), limit); who == "" {
			t.Error("stuck after everything stopped: want a name, got none")
		}
	})
}

// A service manager that hangs holds up nobody.
func TestNotifyHungManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	done := make(chan error, 1)
	go func() {
		n := newNotifier(slog.New(slog.DiscardHandler))
		var err error
		for err == nil { // until the socket is full, which nobody reads
			err = n.send("STATUS=" + strings.Repeat("x", 1000))
		}
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("notify: want a timeout, got %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("notify still waits for a service manager that hangs")
	}
}

// Before the first pass there is nothing to tell but that, and why it takes long.
func TestStatusOfStart(t *testing.T) {
	v := &view{}
	if want, got := "starting", v.status(); want != got {
		t.Errorf("want %q, got %q", want, got)
	}
	v.sync.lastErr = errRefused
	if want, got := "starting: connection refused", v.status(); want != got {
		t.Errorf("after an error: want %q, got %q", want, got)
	}
}
