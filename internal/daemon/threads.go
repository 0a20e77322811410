package daemon

import (
	"os"
	"runtime"
)

// addThreads lets Go run as many threads more as an engine keeps for itself in
// system calls, unless the environment says how many there are. Otherwise the
// runtime would take their processors away, and give them back, with each call.
// What the process may have beside them, by its affinity and its quota, is that of
// the start.
func addThreads(n int) (restore func()) {
	if n == 0 || os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
	return runtime.SetDefaultGOMAXPROCS
}
