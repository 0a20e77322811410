package filetest

import (
	"context"
	"errors"
	"time"
)

// Late says whether a program was not tried, since the time that it had was over
// before its file was waited for: then there is no start in the error. Who began to
// try half a minute ago has tried enough.
func Late(err, start error, begun time.Time) bool {
	return errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, start) && time.Since(begun) < 30*time.Second
}
