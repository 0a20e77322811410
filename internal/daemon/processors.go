package daemon

import (
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
)

// What one processor does without being busy: so many checks a second, each of
// which may be a TLS handshake of a millisecond, and a pass over so many real
// servers.
const (
	fewChecks  = 300
	fewServers = 2000
)

// processors says how many threads Go runs at once. For each check that begins the
// runtime wakes a second one to look for work, and it finds none where there is
// little of it: of the processor time of a check that was a fifth.
//
// Otherwise Go chooses, by the processors, the affinity and the quota that the
// process has now, and goes on looking; a number of ours would end that.
//
// Its methods are safe for concurrent use.
type processors struct {
	mu  sync.Mutex
	one bool
}

// newProcessors returns nil where others decide: the environment, or an engine
// that keeps threads for itself.
func newProcessors(threads int) *processors {
	if threads > 0 || os.Getenv("GOMAXPROCS") != "" {
		return nil
	}
	return &processors{}
}

// suit has as many as the configuration needs that current returns. It is asked
// under the lock: who comes last has the newest one. p may be nil.
func (p *processors) suit(current func() *config.Config) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	one := oneWillDo(current())
	switch {
	case one && !p.one:
		runtime.GOMAXPROCS(1)
	case !one && p.one:
		runtime.SetDefaultGOMAXPROCS()
	}
	p.one = one
}

// restore undoes suit. p may be nil.
func (p *processors) restore() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.one {
		runtime.SetDefaultGOMAXPROCS()
		p.one = false
	}
}

// oneWillDo reports whether one processor is enough for a configuration.
func oneWillDo(c *config.Config) bool {
	servers := 0
	for i := range c.VirtualServices {
		servers += len(c.VirtualServices[i].RealServers) + len(c.VirtualServices[i].Backup)
	}
	if servers > fewServers {
		return false
	}
	rate := 0.0
	for _, p := range fleet.Probes(c) {
		rate += float64(time.Second) / float64(shortest(p.Timing))
	}
	return rate <= fewChecks
}

// shortest returns the shortest time between two checks.
func shortest(t healthcheck.Timing) time.Duration {
	d := t.Interval
	for _, other := range []time.Duration{t.Fast, t.Down} {
		if other > 0 {
			d = min(d, other)
		}
	}
	return d
}
