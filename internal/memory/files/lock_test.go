package files

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// A lock that is given back is free, even while a child that does not execute its
// program yet has a copy of the file.
func TestLockGivenBack(t *testing.T) {
	d, err := Open(t.TempDir(), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	l, err := d.Lock("lock")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(l.f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	var locked *LockedError
	if _, err := d.Lock("lock"); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("while it is held: want a LockedError of process %d, got %v", os.Getpid(), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := d.Lock("lock")
	if err != nil {
		t.Fatalf("given back: %v", err)
	}
	again.Close()
}
