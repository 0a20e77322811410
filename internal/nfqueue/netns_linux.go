package nfqueue

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// inNetNS calls fn on a thread in the network namespace of fd, or of the caller
// if fd is below 0. What fn opens stays in it.
func inNetNS(fd int, fn func() error) error {
	if fd < 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		return fn()
	}
	done := make(chan error, 1)
	go func() {
		// A thread that could not go back stays locked and ends with the goroutine.
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- fmt.Errorf("open network namespace: %w", err)
			return
		}
		defer home.Close()
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		err = fn()
		if herr := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); herr != nil {
			done <- errors.Join(err, fmt.Errorf("leave network namespace: %w", herr))
			return
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}
