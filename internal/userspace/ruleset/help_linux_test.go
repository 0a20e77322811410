package ruleset

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// inNamespace runs a command in a network namespace. Its thread is thrown away.
func inNamespace(fd int, cmd *exec.Cmd) (string, error) {
	var out []byte
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(fd, unix.CLONE_NEWNET)
		if err == nil {
			out, err = cmd.CombinedOutput()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
}
