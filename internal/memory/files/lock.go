package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// LockedError says that another process has the lock.
type LockedError struct {
	// Path is the lock file's.
	Path string
	// PID is the process that holds it; 0 if the file does not say.
	PID int
}

// Error names the process.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("another lbd runs here: %s is locked", e.Path)
	}
	return fmt.Sprintf("another lbd runs here: process %d holds %s", e.PID, e.Path)
}

// Lock is a lock that this process holds.
type Lock struct{ f *os.File }

// Close gives the lock back. Closing the file would not do: a process that is being
// started has a copy of it, and of the lock, until it executes its program.
func (l *Lock) Close() error {
	err := flock(l.f, syscall.LOCK_UN)
	return errors.Join(err, l.f.Close())
}

// Lock takes a lock, which is a file in the directory, and writes this process's
// ID into it. The kernel drops the lock with the process. The file stays: removing it would let two processes lock two files of
// one name. The error is a *LockedError if another process has it.
func (d *Dir) Lock(name string) (*Lock, error) {
	path := d.Path(name)
	if info, err := d.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("lock: %s is not a regular file", path)
	}
	f, err := d.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		var in *os.PathError // which has the name alone
		if errors.As(err, &in) {
			err = in.Err
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &LockedError{Path: path, PID: readPID(f)}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	writePID(f)
	return &Lock{f}, nil
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// writePID writes this process's ID into a file, where it only helps people: a disk
// that is full must not keep lbd from starting.
func writePID(f *os.File) {
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
}

// readPID returns the process that the file names, 0 if it names none.
func readPID(f *os.File) int {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 1 {
		return 0
	}
	return pid
}
