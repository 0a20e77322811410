package daemon

import (
	"os"
	"runtime/debug"
)

// startGCPercent is GOGC during a start. What a start allocates it mostly keeps,
// so that each collection marks more than the last and frees next to nothing.
const startGCPercent = 400

// delayGC lets garbage wait until restore is called, unless the environment says
// how long it may. GOMEMLIMIT stays in force.
func delayGC() (restore func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	old := debug.SetGCPercent(startGCPercent)
	return func() { debug.SetGCPercent(old) }
}
