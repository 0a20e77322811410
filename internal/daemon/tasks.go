package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// task is something that runs as long as the daemon does.
type task struct {
	name string
	run  func(ctx context.Context) error
}

// runTasks runs all tasks until ctx is done or one fails, and returns the first
// error once all have returned.
func runTasks(ctx context.Context, tasks ...task) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for _, t := range tasks {
		wg.Go(func() {
			err := t.run(ctx)
			if err == nil && ctx.Err() == nil {
				err = errors.New("ended by itself")
			}
			if err != nil {
				once.Do(func() { first = fmt.Errorf("%s: %w", t.name, err) })
				cancel()
			}
		})
	}
	wg.Wait()
	return first
}

func joinLines(lines []string) string { return strings.Join(lines, "\n") }
