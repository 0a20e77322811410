package conntrack

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// netNS is a network namespace that can be entered again.
type netNS struct{ f *os.File }

// openNetNS returns the namespace of fd, or of the calling thread if fd is
// negative.
func openNetNS(fd int) (*netNS, error) {
	if fd < 0 {
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return nil, fmt.Errorf("open network namespace: %w", err)
		}
		return &netNS{f}, nil
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	return &netNS{os.NewFile(uintptr(dup), "netns")}, nil
}

func (ns *netNS) close() error { return ns.f.Close() }

// do calls fn on a thread in the namespace. It changes the thread's only where
// that is another one, which alone needs CAP_SYS_ADMIN.
func (ns *netNS) do(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := ns.enter()
		if err != nil {
			// The thread never left, or ends with the goroutine.
			done <- err
			return
		}
		err = fn()
		if home != nil {
			herr := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)
			home.Close()
			if herr != nil {
				done <- errors.Join(err, os.NewSyscallError("setns", herr))
				return
			}
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// enter moves the thread into the namespace and returns where it was, or nil if
// it was there already.
func (ns *netNS) enter() (home *os.File, err error) {
	home, err = os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	here, err := home.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = ns.f.Stat(); err == nil && os.SameFile(here, there) {
			home.Close()
			return nil, nil
		}
	}
	if err == nil {
		err = os.NewSyscallError("setns", unix.Setns(int(ns.f.Fd()), unix.CLONE_NEWNET))
	}
	if err != nil {
		home.Close()
		return nil, err
	}
	return home, nil
}
