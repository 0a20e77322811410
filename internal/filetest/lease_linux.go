package filetest

import (
	"os"
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"
)

// Withhold has whoever opens a file wait, as a file system does whose server is gone,
// until the end of the test or a call of give. The kernel would end that after 45 s.
func Withhold(t testing.TB, path string) (give func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The kernel asks for the lease with SIGIO.
	signal.Ignore(unix.SIGIO)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	given := false
	give = func() {
		if !given {
			given = true
			f.Close()
			signal.Reset(unix.SIGIO)
		}
	}
	t.Cleanup(give)
	return give
}

// Threads returns how many threads this process has.
func Threads(t testing.TB) int {
	t.Helper()
	return entries(t, "/proc/self/task")
}
