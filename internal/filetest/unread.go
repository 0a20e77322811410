package filetest

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Unread returns the error of running a program whose file is withheld, for 20 ms.
// Where that time is over before the file is waited for, there is no start in the
// error: it is run again, for half a minute at most.
func Unread(t testing.TB, start error, run func(context.Context) error) (err error) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < 30*time.Second; {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err = run(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, start) {
			break
		}
	}
	return err
}
