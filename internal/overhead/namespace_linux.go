package overhead

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// inNewNamespace calls fn on a thread in a network namespace of its own, whose
// loopback device is up. The namespace ends with fn and the sockets that fn
// leaves open.
func inNewNamespace(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("open network namespace: %w", err)
			return
		}
		defer home.Close()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("make network namespace: %w", err)
			return
		}
		err = loopbackUp()
		if err == nil {
			err = fn()
		}
		// A thread that cannot go back stays locked and ends with the goroutine.
		if herr := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); herr != nil {
			done <- errors.Join(err, fmt.Errorf("leave network namespace: %w", herr))
			return
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// loopbackUp sets lo up in the thread's namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}
