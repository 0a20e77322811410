package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// NS is a network namespace that can be entered again. Its methods are safe for
// concurrent use.
type NS struct{ f *os.File }

// Open returns the namespace of fd, or of the calling thread if fd is negative.
// The caller may close fd.
func Open(fd int) (*NS, error) {
	if fd < 0 {
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return nil, fmt.Errorf("open network namespace: %w", err)
		}
		return &NS{f}, nil
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	return &NS{os.NewFile(uintptr(dup), "netns")}, nil
}

// OpenName returns the namespace with a name or path, as File does.
func OpenName(nameOrPath string) (*NS, error) {
	f, err := File(nameOrPath)
	if err != nil {
		return nil, err
	}
	return &NS{f}, nil
}

// namedDir is where ip-netns(8) keeps named namespaces.
const namedDir = "/run/netns"

// File opens a network namespace by its name, as ip-netns(8) knows it, or by an
// absolute path. The empty string is the namespace that the calling thread is
// in. errors.Is(err, fs.ErrNotExist) tells that there is none.
func File(nameOrPath string) (*os.File, error) {
	path := nameOrPath
	switch {
	case path == "":
		// Not /proc/self: that is the main thread's.
		path = "/proc/thread-self/ns/net"
	case path == "." || path == "..":
		return nil, fmt.Errorf("network namespace %q: not a name", nameOrPath)
	case !strings.Contains(path, "/"):
		path = filepath.Join(namedDir, path)
	case !filepath.IsAbs(path):
		return nil, fmt.Errorf("network namespace %q: neither a name nor an absolute path", nameOrPath)
	}
	// O_NONBLOCK: whatever the path is, opening it must not hang.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	if !isNamespace(file) {
		file.Close()
		return nil, fmt.Errorf("%s: not a network namespace", path)
	}
	return file, nil
}

// isNamespace tells a network namespace from any other file: a name whose
// namespace is gone is an ordinary empty file.
func isNamespace(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	err = raw.Control(func(fd uintptr) {
		// Linux before 4.11 has no such request, but answers it like other
		// files do; setns would refuse later.
		kind, err := unix.IoctlRetInt(int(fd), unix.NS_GET_NSTYPE)
		is = err == nil && kind == unix.CLONE_NEWNET
	})
	return err == nil && is
}

// Close closes the descriptor. What was opened in the namespace stays there.
func (ns *NS) Close() error { return ns.f.Close() }

// Do calls fn on a thread in the namespace and returns its error. It changes the
// thread's only where that is another one, which alone needs CAP_SYS_ADMIN. What
// fn opens stays in the namespace; goroutines that it starts run outside.
func (ns *NS) Do(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		// A thread that could not go back stays locked and ends with the goroutine.
		home, err := ns.enter()
		if err != nil {
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
func (ns *NS) enter() (*os.File, error) {
	home, err := os.Open("/proc/thread-self/ns/net")
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

// In opens the namespace of fd, as Open does, and calls fn in it once.
func In(fd int, fn func() error) error {
	ns, err := Open(fd)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(fn)
}

// Fresh calls fn in a network namespace of its own, whose loopback device is up.
// The namespace ends with fn and what fn leaves open in it.
func Fresh(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		err := os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNET))
		if err == nil {
			err = loopbackUp()
		}
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}

// loopbackUp sets lo up in the thread's namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return os.NewSyscallError("set lo up", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req))
}
