package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// DefaultSocket is where lbd listens unless its configuration says otherwise.
const DefaultSocket = "/run/lbd/lbd.sock"

// socketMode lets the owner and the group in.
const socketMode = 0o660

// Listen makes the control socket with mode 0660 and the group gid; -1 leaves
// the group that the system gives. The directory must exist and must not be
// writable by everybody. The socket of a dead server is replaced; one that
// answers, and anything that is not a socket, is an error.
//
// Nobody but the owner can connect at any moment before Listen returns. Closing
// the listener removes the socket.
func Listen(path string, gid int) (net.Listener, error) {
	if err := checkDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	lc := net.ListenConfig{Control: closeMode}
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	// The group first: with it the mode opens the socket to the right people.
	err = os.Lchown(path, -1, gid)
	if err == nil {
		err = os.Chmod(path, socketMode)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), l.Close())
	}
	return l, nil
}

// checkDir refuses a directory in which anybody could swap the socket for their
// own.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("everybody may write to %s (mode %04o): put the socket into a directory that only root may write to", dir, info.Mode().Perm())
	}
	return nil
}

// removeStale removes the socket that a dead server left behind.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("exists and is not a socket")
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		c.Close()
		return errors.New("another process answers on it; is lbd running already?")
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	default:
		// Such as a full backlog: somebody is there.
		return fmt.Errorf("exists, and whether it is in use is unknown: %w", err)
	}
}
