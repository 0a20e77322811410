package checktest

import (
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/filetest"
)

// Leaks calls check n times, at most 50 at once, and fails the test if there are
// more descriptors or goroutines than before once all have returned.
func Leaks(t testing.TB, n int, check func()) {
	t.Helper()
	// A collection would close forgotten connections, sooner or later.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	check() // makes the poller and the like
	fds, routines := settled(t, 0, 0)
	var all sync.WaitGroup
	places := make(chan struct{}, 50)
	for range n {
		places <- struct{}{}
		all.Go(func() {
			check()
			<-places
		})
	}
	all.Wait()
	if f, r := settled(t, fds, routines); f > fds || r > routines {
		t.Errorf("want %d descriptors and %d goroutines after %d checks as before, got %d and %d", fds, routines, n, f, r)
	}
}

// settled counts descriptors and goroutines. It waits, but not for ever, until
// there are no more than given, or until they do not change: the server's end of
// a connection takes a moment to close.
func settled(t testing.TB, fds, routines int) (int, int) {
	t.Helper()
	f, r := filetest.Descriptors(t), runtime.NumGoroutine()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
		f2, r2 := filetest.Descriptors(t), runtime.NumGoroutine()
		if fds == 0 && f2 == f && r2 == r || f2 <= fds && r2 <= routines {
			return f2, r2
		}
		f, r = f2, r2
	}
	return f, r
}
