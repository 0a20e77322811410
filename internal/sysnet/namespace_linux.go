package sysnet

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netns"
)

// Namespace is a network namespace, kept alive by an open descriptor. Its
// methods are safe for concurrent use.
type Namespace struct {
	// name is what the caller called it, empty for the process's own.
	name string
	file *os.File
}

// OpenNamespace opens a network namespace by its name, as ip-netns(8) knows it,
// or by an absolute path. The empty string is the namespace that the process
// runs in. errors.Is(err, fs.ErrNotExist) tells that there is none.
func OpenNamespace(nameOrPath string) (*Namespace, error) {
	file, err := netns.File(nameOrPath)
	if err != nil {
		return nil, err
	}
	return &Namespace{name: nameOrPath, file: file}, nil
}

// control calls fn with the descriptor, which stays open for that long, or
// returns os.ErrClosed.
func (n *Namespace) control(fn func(fd int) error) error {
	raw, err := n.file.SyscallConn()
	if err != nil {
		return err
	}
	var fnErr error
	if err := raw.Control(func(fd uintptr) { fnErr = fn(int(fd)) }); err != nil {
		return os.ErrClosed
	}
	return fnErr
}

// String returns the name or path it was opened by, or "own".
func (n *Namespace) String() string {
	if n.name == "" {
		return "own"
	}
	return n.name
}

// FD returns the descriptor of the namespace, which is valid until Close.
func (n *Namespace) FD() int { return int(n.file.Fd()) }

// Close closes the descriptor. Sockets that were made in the namespace stay
// there.
func (n *Namespace) Close() error { return n.file.Close() }

// Do calls fn with its thread inside the namespace, and returns fn's error. What
// fn opens stays in the namespace: sockets, netlink connections, files below
// /proc/thread-self/net and /proc/sys/net. Goroutines that fn starts run outside. Keep fn short:
// it occupies a thread. A panic of fn is passed on as text, with its stack.
//
// When the thread cannot go back, fn's error is returned all the same and the
// thread is thrown away.
func (n *Namespace) Do(fn func() error) error {
	if n.name == "" {
		return fn()
	}
	type outcome struct {
		err      error
		panicked string
	}
	done := make(chan outcome, 1)
	// A goroutine of its own, because a thread that is left in the wrong
	// namespace ends with the goroutine that has it locked.
	go func() {
		out := outcome{err: errors.New("the function ended its goroutine")}
		defer func() {
			if v := recover(); v != nil {
				out.panicked = fmt.Sprintf("%v\n\n%s", v, debug.Stack())
			}
			done <- out
		}()
		out.err = n.enter(fn)
	}()
	out := <-done
	if out.panicked != "" {
		panic(out.panicked)
	}
	return out.err
}

// enter calls fn inside the namespace, on the goroutine of Do.
func (n *Namespace) enter(fn func() error) error {
	runtime.LockOSThread()
	before, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open current network namespace: %w", err)
	}
	defer unix.Close(before)
	err = n.control(func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) })
	if err != nil {
		runtime.UnlockOSThread()
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w (needs CAP_SYS_ADMIN)", err)
		}
		return fmt.Errorf("enter network namespace %v: %w", n, err)
	}
	defer func() {
		if unix.Setns(before, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return fn()
}
