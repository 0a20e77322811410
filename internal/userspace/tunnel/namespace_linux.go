package tunnel

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// inFreshNamespace calls fn in a network namespace that ends with it.
func inFreshNamespace(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		err := os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNET))
		if err == nil {
			err = up()
		}
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}

// up sets lo up, which routes need.
func up() error {
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
	return os.NewSyscallError("ioctl", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req))
}
