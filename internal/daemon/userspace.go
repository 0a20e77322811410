package daemon

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/memory"
)

// openUserspace returns what opens the userspace engine as it is configured.
func openUserspace(config.Userspace, *memory.EngineFile, *slog.Logger) opener {
	return func(context.Context, place) (*opened, error) {
		return nil, errors.New("this version of lbd has no userspace engine")
	}
}

// reopenUserspace returns what opens the userspace engine as it was left.
func reopenUserspace(f *memory.EngineFile, log *slog.Logger) opener {
	return openUserspace(config.Userspace{}, f, log)
}
