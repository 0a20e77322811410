package nfqueue

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// fault is a kind of fault that is logged.
type fault uint8

const (
	faultMalformed fault = iota
	faultRefused
	faultPanic
	faultKinds
)

var faultText = [faultKinds]string{
	faultMalformed: "message of the queue did not parse",
	faultRefused:   "verdict refused",
	faultPanic:     "handler of packets panicked",
}

// logInterval is how long a kind of fault is silent after it was logged.
const logInterval = 10 * time.Second

// faults logs each kind of fault now and then: hostile packets must not fill the
// log.
type faults struct {
	last  [faultKinds]time.Time
	quiet [faultKinds]int
}

func (f *faults) due(k fault) (since int, ok bool) {
	if now := time.Now(); f.last[k].IsZero() || now.Sub(f.last[k]) >= logInterval {
		since, f.quiet[k], f.last[k] = f.quiet[k], 0, now
		return since, true
	}
	f.quiet[k]++
	return 0, false
}

func (f *faults) log(l *slog.Logger, k fault, err error) {
	if unlogged, ok := f.due(k); ok {
		l.Warn(faultText[k], "err", err, "unlogged", unlogged)
	}
}

func (f *faults) panicked(l *slog.Logger, reason any) {
	if unlogged, ok := f.due(faultPanic); ok {
		l.Error(faultText[faultPanic], "err", fmt.Sprint(reason), "unlogged", unlogged, "stack", string(debug.Stack()))
	}
}
