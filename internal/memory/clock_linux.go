package memory

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is the time since boot, suspend included. It never jumps.
func sinceBoot() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("boot clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
