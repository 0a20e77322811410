package memory

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const lockName = "lbd.lock"

// LockedError says that another process has the store.
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

// lock takes the lock of a directory and writes this process's ID into it. The
// kernel drops the lock with the process. The file stays: removing it would let
// two processes lock two files of one name.
func lock(dir *os.Root) (*os.File, error) {
	path := filepath.Join(dir.Name(), lockName)
	if info, err := dir.Lstat(lockName); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("lock: %s is not a regular file", path)
	}
	f, err := dir.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := flock(f); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &LockedError{Path: path, PID: readPID(f)}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := writePID(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
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
