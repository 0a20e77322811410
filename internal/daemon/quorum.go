package daemon

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/ipvs"
)

// hookTimeout bounds a command.
const hookTimeout = 30 * time.Second

// runCommand runs a program with its arguments and some variables besides, and
// returns the first line that it wrote. A nil error means that its exit status was 0.
type runCommand func(ctx context.Context, args, env []string) (output string, err error)

// quorumHooks run the commands of quorums, one at a time, and none on the path of a
// decision. They are level-triggered: what counts is the state that a service has
// now and the one of which its command was told last, so that a service that
// changes faster than its commands run skips what is over already, and the line is
// never longer than there are services. A new lbd has told nobody anything, so
// that after a start each command runs once for what it found.
type quorumHooks struct {
	log *slog.Logger
	run runCommand
	// wake holds a token for work to look at wanted.
	wake chan struct{}

	mu     sync.Mutex
	wanted []quorumHook
	told   map[ipvs.ServiceKey]fleet.QuorumState
	// last is whose command ran last: the next one is after it, lest a service
	// that never rests holds up the others.
	last ipvs.ServiceKey
}

// quorumHook is what a service wants to be told.
type quorumHook struct {
	service string
	key     ipvs.ServiceKey
	quorum  fleet.QuorumState
	// args are the command of that state; empty for none.
	args []string
}

func newQuorumHooks(log *slog.Logger, run runCommand) *quorumHooks {
	return &quorumHooks{log: log, run: run, wake: make(chan struct{}, 1), told: make(map[ipvs.ServiceKey]fleet.QuorumState)}
}

// commands returns the hooks of all services that have commands and know their
// quorum.
func commands(f *fleet.Fleet, c *config.Config) []quorumHook {
	var list []quorumHook
	for i := range c.VirtualServices {
		// A decision has the services of its configuration in order, and first.
		vs, s := &c.VirtualServices[i], &f.Services[i]
		q := &vs.Quorum
		if len(q.OnUp)+len(q.OnDown) == 0 {
			continue
		}
		h := quorumHook{service: vs.Name, key: vs.ServiceKey, quorum: s.Quorum}
		switch s.Quorum {
		case fleet.QuorumHeld:
			h.args = q.OnUp
		case fleet.QuorumLost:
			h.args = q.OnDown
		}
		list = append(list, h)
	}
	return list
}

// want says what all services want to be told now.
func (h *quorumHooks) want(list []quorumHook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(list)+len(h.wanted) == 0 {
		return
	}
	told := make(map[ipvs.ServiceKey]fleet.QuorumState, len(list))
	for _, w := range list {
		told[w.key] = h.told[w.key]
	}
	h.wanted, h.told = list, told
	signal(h.wake)
}

// work runs what is due until ctx is done.
func (h *quorumHooks) work(ctx context.Context) error {
	for {
		next, ok := h.next()
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-h.wake:
			}
			continue
		}
		if h.tell(ctx, next); ctx.Err() != nil {
			return nil
		}
	}
}

// next returns a hook that is due, in turn, and notes that it has been told.
func (h *quorumHooks) next() (quorumHook, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	after := 1 + slices.IndexFunc(h.wanted, func(w quorumHook) bool { return w.key == h.last })
	for i := range h.wanted {
		w := h.wanted[(after+i)%len(h.wanted)]
		if w.quorum == fleet.QuorumNone || h.told[w.key] == w.quorum {
			continue
		}
		h.told[w.key] = w.quorum
		if len(w.args) > 0 {
			h.last = w.key
			return w, true
		}
	}
	return quorumHook{}, false
}

// tell runs the command of a hook. One that fails is not tried again: its state
// has been told, and the log has what it said.
func (h *quorumHooks) tell(ctx context.Context, w quorumHook) {
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	begun := time.Now()
	output, err := h.run(ctx, w.args, []string{
		"LBD_SERVICE=" + w.service,
		"LBD_KEY=" + w.key.String(),
		"LBD_QUORUM=" + w.quorum.String(),
	})
	log := h.log.With("service", w.service, "quorum", w.quorum.String(), "command", w.args[0],
		"took", time.Since(begun).Round(time.Millisecond))
	if err != nil {
		log.Error("command failed", "err", err, "output", output)
		return
	}
	log.Info("command done", "output", output)
}
