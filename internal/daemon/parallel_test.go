package daemon

import (
	"math"
	"testing"
)

// Ten thousand checks may need more files than a process may open.
func TestChecksWithin(t *testing.T) {
	for files, want := range map[uint64]int{
		0: 16, 256: 16, 575: 16, 576: 16, 580: 17, 1024: 128, 4096: 896, 524288: 130944, math.MaxUint64: 262016,
	} {
		if got := checksWithin(files); got != want {
			t.Errorf("%d files: want %d checks, got %d", files, want, got)
		}
	}
	if got := parallelChecks(); got < leastChecks {
		t.Errorf("on this host: want at least %d, got %d", leastChecks, got)
	}
}
