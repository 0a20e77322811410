package files

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// onTmpfs calls f with a small file system of its own.
func onTmpfs(t *testing.T, f func(dir string)) {
	t.Helper()
	netnstest.Require(t, "netns")
	dir := t.TempDir()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread has mounts of its own, and ends with the goroutine.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=700")
		}
		if err != nil {
			t.Errorf("mount a file system: %v", err)
			return
		}
		f(dir)
	}()
	<-done
}

// A disk that is full keeps nobody from the lock, and one that is read-only is told
// of with the path.
func TestNetnsLockWithoutRoom(t *testing.T) {
	onTmpfs(t, func(dir string) {
		d, err := Open(dir, 0o700)
		if err != nil {
			t.Error(err)
			return
		}
		defer d.Close()
		fill, err := os.Create(dir + "/fill")
		for block := make([]byte, 4096); err == nil; {
			_, err = fill.Write(block)
		}
		fill.Close()
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("fill: want %v, got %v", syscall.ENOSPC, err)
		}
		f, err := d.Lock("lock")
		if err != nil {
			t.Errorf("full: %v", err)
			return
		}
		var locked *LockedError
		if _, err := d.Lock("lock"); !errors.As(err, &locked) {
			t.Errorf("a second lock: want a LockedError, got %v", err)
		}
		f.Close()
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Error(err)
		}
		if _, err := d.Lock("lock"); !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), dir+"/lock: ") {
			t.Errorf("read-only: want %v of %s/lock, got %v", syscall.EROFS, dir, err)
		}
	})
}
