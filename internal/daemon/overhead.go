package daemon

import (
	"context"
	"sync"

	"github.com/lbd-project/lbd/internal/overhead"
	"github.com/lbd-project/lbd/sched"
)

// overheadProbe asks the kernel how it weighs connections, once: the answer does
// not change while the kernel runs.
type overheadProbe struct {
	mu    sync.Mutex
	known bool
	value sched.Overhead
	// ask replaces the kernel in tests.
	ask func(context.Context) (sched.Overhead, error)
}

// get returns the kernel's overhead. The error matches ipvs.ErrNotAvailable where
// the kernel has no IPVS.
func (p *overheadProbe) get(ctx context.Context) (sched.Overhead, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known {
		return p.value, nil
	}
	ask := p.ask
	if ask == nil {
		ask = overhead.Probe
	}
	v, err := ask(ctx)
	if err == nil {
		p.known, p.value = true, v
	}
	return v, err
}
