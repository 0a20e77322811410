package netnstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TB is the part of testing.TB that the package uses; test programs that are no
// tests bring their own.
type TB interface {
	Helper()
	Cleanup(func())
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// NS is a network namespace. It lives until the test that made it has ended and
// the last process and socket in it are gone. Its methods end the test on an
// error and are safe for concurrent use.
type NS struct {
	t  TB
	fd *os.File
	// nl is a route socket inside the namespace.
	nl *netlink.Handle
}

// New makes a namespace with lo up, for the duration of the test. Duplicate
// address detection is off in it, so that IPv6 addresses are usable at once.
func New(t TB) *NS {
	t.Helper()
	fd, err := unshare()
	if err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() { fd.Close() })
	n := &NS{t: t, fd: fd}
	err = n.Do(func() error {
		n.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		t.Fatalf("open route socket in namespace: %v", err)
	}
	t.Cleanup(n.nl.Close)
	for _, conf := range []string{"all", "default", "lo"} {
		n.setSysctlIfThere("net.ipv6.conf."+conf+".accept_dad", "0")
	}
	n.Up("lo")
	return n
}

// unshare makes a namespace in a thread that is thrown away.
func unshare() (*os.File, error) {
	type result struct {
		fd  *os.File
		err error
	}
	c := make(chan result, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, so that nothing else
		// can run in the new namespace by accident.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			c <- result{err: fmt.Errorf("unshare: %w", err)}
			return
		}
		fd, err := openThreadNS()
		c <- result{fd, err}
	}()
	r := <-c
	return r.fd, r.err
}

func openThreadNS() (*os.File, error) { return os.Open("/proc/thread-self/ns/net") }

// Do calls fn with its thread inside the namespace and returns fn's error. What
// fn opens stays in the namespace: sockets, netlink connections, started
// processes. Goroutines that fn starts run outside. Calls nest; fn may end the
// test.
func (n *NS) Do(fn func() error) error {
	runtime.LockOSThread()
	before, err := openThreadNS()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open current namespace: %w", err)
	}
	defer before.Close()
	if err := unix.Setns(int(n.fd.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace: %w", err)
	}
	defer func() {
		// A thread that cannot go back stays locked, and so ends with its goroutine
		// instead of running other code in the wrong namespace.
		if err := unix.Setns(int(before.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("netnstest: leave namespace: %v", err))
		}
		runtime.UnlockOSThread()
	}()
	return fn()
}

// FD returns the namespace's descriptor, owned by the NS.
func (n *NS) FD() int { return int(n.fd.Fd()) }

// Path returns a path of the namespace that other processes can open while this
// one lives.
func (n *NS) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.FD()) }

// Start starts a command inside the namespace. The caller waits for it.
func (n *NS) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// Run runs a command inside the namespace and returns its standard output. A
// failed command's error includes what it wrote to standard error.
func (n *NS) Run(cmd *exec.Cmd) (string, error) {
	var out []byte
	err := n.Do(func() (err error) {
		out, err = cmd.Output()
		return err
	})
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return string(out), err
}
