package healthcheck

import (
	"context"
	"fmt"
)

// maxReads is how many threads the reads of files may take at once. Nothing ends
// one whose file system does not answer, and the Go runtime ends a program with
// 10,000 threads.
const maxReads = 1000

// BeginRead is called by a checker before it reads a file, which takes a thread for
// as long as the file system takes to answer. A Monitor lets 1000 do so at once:
// the others wait until ctx is done, and then get an error. Call end after the
// read. The zero Env lets everybody read.
func (e Env) BeginRead(ctx context.Context) (end func(), err error) {
	if e.reading == nil {
		return func() {}, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case e.reading <- struct{}{}:
		return func() { <-e.reading }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("not read, while %d reads of files do not end: %w (%w)", cap(e.reading), ctx.Err(), ErrLocal)
	}
}
