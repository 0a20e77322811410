package daemon

import (
	"os"
	"runtime"
)

// addThreads lets Go run as many threads more as an engine keeps for itself in
// system calls, unless the environment says how many there are. Otherwise the
// runtime would take their processors away, and give them back, with each call.
func addThreads(n int) (restore func()) {
	if n == 0 || os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	old := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(old + n)
	return func() { runtime.GOMAXPROCS(old) }
}
