package api

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// closeMode runs between socket and bind. On Linux a bound socket's file takes
// its mode from the socket (unix_bind_bsd in net/unix/af_unix.c), so the file is
// closed to others from the moment that it exists, whatever the umask, which
// belongs to the whole process and must not be touched for this.
func closeMode(_, _ string, c syscall.RawConn) error {
	var modeErr error
	err := c.Control(func(fd uintptr) {
		modeErr = unix.Fchmod(int(fd), 0o600)
	})
	return errors.Join(err, modeErr)
}
