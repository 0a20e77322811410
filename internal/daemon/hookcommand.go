package daemon

import (
	"context"
	"errors"
	"strings"

	"github.com/lbd-project/lbd/internal/command"
)

// hookCommands run the commands of quorums, one at a time.
type hookCommands struct {
	// make makes a command of a program and its arguments.
	make func(args []string) (succeeder, error)
	// stuck are commands by their arguments whose program could not be killed or
	// whose file could not be read: they know when it has ended, and begin no other
	// until then.
	stuck map[string]succeeder
}

// succeeder is a command.Command.
type succeeder interface {
	Succeed(ctx context.Context, env ...string) (command.Result, error)
}

// commandsIn returns what runs commands in the namespace that enter enters, which
// is nil for lbd's own.
func commandsIn(enter func(func() error) error, reads *command.Reads) *hookCommands {
	return &hookCommands{stuck: make(map[string]succeeder), make: func(args []string) (succeeder, error) {
		return command.New(command.Spec{Args: args, Enter: enter, Reads: reads})
	}}
}

// run is a runCommand.
func (h *hookCommands) run(ctx context.Context, args, env []string) (string, error) {
	// No argument has a zero byte.
	key := strings.Join(args, "\x00")
	c := h.stuck[key]
	if c == nil {
		var err error
		if c, err = h.make(args); err != nil {
			return "", err
		}
	}
	r, err := c.Succeed(ctx, env...)
	if errors.Is(err, command.ErrStuck) || errors.Is(err, command.ErrUnread) {
		h.stuck[key] = c
	} else {
		delete(h.stuck, key)
	}
	return r.Line(), err
}
