package retry_test

import (
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/retry"
)

func TestDelay(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 8: time.Minute, 1000: time.Minute,
	} {
		if got := retry.Delay(failures, time.Second, time.Minute, 0); got != want {
			t.Errorf("%d failures: want %v, got %v", failures, want, got)
		}
		if got := retry.Delay(failures, time.Second, time.Minute, 0.999); got >= want || got < want*3/4 {
			t.Errorf("%d failures: want less than %v and at least 3/4 of it, got %v", failures, want, got)
		}
	}
}
