package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/internal/memory/files"
	"github.com/lbd-project/lbd/internal/memory/state"
)

// checkStateFile refuses a state file that is one of the memory's: each would write
// over what the other one keeps.
func checkStateFile(store *memory.Store, path string) error {
	if !store.Holds(path) {
		return nil
	}
	return &ConfigError{Lines: []string{fmt.Sprintf("state_file: %s is where lbd keeps what it knows until the next boot: name another file", path)}}
}

// openOverrides opens the state file and reads it. One that cannot be used is no
// reason not to balance: the log and the status tell of it. The error is that
// another lbd has it, which a person must put right.
func openOverrides(c *config.Config, log *slog.Logger) (kept, io.Closer, error) {
	if c.StateFile == "" {
		return kept{}, io.NopCloser(nil), nil
	}
	f, err := state.Open(c.StateFile)
	var locked *files.LockedError
	switch {
	case errors.As(err, &locked):
		return kept{}, nil, fmt.Errorf("state_file %s: %w: each lbd needs one of its own", c.StateFile, err)
	case err != nil:
		err = fmt.Errorf("state_file %s: %w", c.StateFile, err)
		log.Error("what operators say is not kept over a restart", "err", err)
		return kept{err: err}, io.NopCloser(nil), nil
	}
	k := kept{store: f}
	k.overrides, k.warnings, k.err = f.Load(c.StateMaxAge)
	for _, w := range k.warnings {
		log.Error("part of what operators said is lost", "err", w)
	}
	if k.err != nil {
		log.Error("what operators said before is not known", "err", k.err)
	}
	if n := len(k.overrides); n > 0 {
		log.Info("admin states in force", "real_servers", n, "file", c.StateFile)
	}
	return k, f, nil
}

// saveAdmin writes down what operators said, and tells when that fails, fails in
// another way, and works again. The next pass tries again.
func (o *owner) saveAdmin(now time.Time) {
	last := o.admin.err
	err := o.admin.save(o.loaded.StateMaxAge, now)
	switch {
	case err != nil:
		o.unsaved++
		if last == nil || last.Error() != err.Error() {
			o.log.Error("what operators say is not written down, trying again", "file", o.admin.path, "err", err)
			o.events.add(api.Event{Kind: api.EventAdmin, Text: "what operators say is not written down, trying again", Reason: err.Error()})
		}
	case last != nil:
		o.log.Info("what operators say is written down again", "file", o.admin.path)
		o.events.add(api.Event{Kind: api.EventAdmin, Text: "what operators say is written down again"})
		fallthrough
	default:
		o.unsaved = 0
	}
}
