package notify

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"testing"

	"github.com/lbd-project/lbd/internal/command"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/filetest"
)

// With each reload that changes a hook there is another of its program. While the
// file of that does not come, all of them take one thread.
func TestProgramUnread(t *testing.T) {
	path := t.TempDir() + "/page"
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	give := filetest.Withhold(t, path)
	defer give()
	set, n, before := New(slog.New(slog.DiscardHandler), command.NewReads()), someEvents(), filetest.Threads(t)
	const hooks = 40
	for i := range hooks {
		h := set.make(config.Hook{Name: "page", Exec: &config.ExecHook{Args: []string{path, strconv.Itoa(i)}}}, set.log)
		err := filetest.Unread(t, command.ErrStart, func(ctx context.Context) error {
			_, err := h.sender.send(ctx, n)
			return err
		})
		if !errors.Is(err, command.ErrUnread) {
			t.Fatalf("want %v, got %v", command.ErrUnread, err)
		}
	}
	if got := filetest.Threads(t); got > before+hooks/2 {
		t.Errorf("%d threads before, %d after %d hooks", before, got, hooks)
	}
}
