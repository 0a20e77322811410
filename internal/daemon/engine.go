package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/sysnet"
	"github.com/lbd-project/lbd/internal/userspace"
	"github.com/lbd-project/lbd/ipvs"
)

// opened is an engine that was opened, with what the daemon does with it besides
// its table. A nil function is for what the engine does not have.
type opened struct {
	// engine and watched are the same table. A reading of watched never delays a
	// write to engine.
	engine, watched Engine
	// version is the kernel's IPVS version, or how the userspace engine works
	// here.
	version string
	// sysctls are the engine's own in place of the kernel's net.ipv4.vs.
	sysctls Sysctls
	// threads is how many threads it keeps for itself.
	threads int
	// run serves new connections until the context is done.
	run func(context.Context) error
	// warnings are what a person should know of it now.
	warnings func() []string
	// repairs counts what somebody else changed and the engine repaired, where it
	// is not the table.
	repairs func() uint64
	// check says what it cannot do of a configuration on this host.
	check func(*config.Config) []string
	// explain says how the real servers of a service stand in the engine's own
	// scheduler.
	explain func(context.Context, ipvs.ServiceKey) (userspace.Explanation, error)
	// handshakes tells how connections begin; nil where it cannot.
	handshakes handshakeSource
	// abilities are what it needs, or could use, of the host.
	abilities func() []userspace.Ability
	// clear removes all that is left of it on the host once its table is empty.
	clear func(context.Context) error
	close func() error
}

// place is a network namespace with its name in the configuration, empty for
// lbd's own.
type place struct {
	*sysnet.Namespace
	name string
}

// opener opens an engine. The error matches ipvs.ErrNotAvailable where the kernel
// does not have it.
type opener func(ctx context.Context, p place) (*opened, error)

// wish is what is asked for where an engine is chosen.
type wish struct {
	// engine is the configuration's.
	engine config.Engine
	// bound is the engine that still has things of lbd; empty for none.
	bound config.Engine
	// kernel and userspace open the engines.
	kernel, userspace opener
}

// choose opens the engine that the configuration wants, and says why it is that
// one. No engine is opened beside another one's services: both would answer the
// same clients.
func (w wish) choose(ctx context.Context, p place) (name config.Engine, o *opened, reason string, err error) {
	switch w.engine {
	case config.EngineKernel:
		if w.bound == config.EngineUserspace {
			return "", nil, "", w.refuse()
		}
		o, err = w.kernel(ctx, p)
		return config.EngineKernel, o, "engine: kernel in the configuration", engineError(err)
	case config.EngineUserspace:
		if err = w.kernelGone(ctx, p); err == nil {
			o, err = w.userspace(ctx, p)
		}
		return config.EngineUserspace, o, "engine: userspace in the configuration", err
	}
	if w.bound == config.EngineUserspace {
		o, err = w.userspace(ctx, p)
		return config.EngineUserspace, o, "engine: auto, and it has lbd's services since an earlier start", err
	}
	o, err = w.kernel(ctx, p)
	if !errors.Is(err, ipvs.ErrNotAvailable) {
		return config.EngineKernel, o, "engine: auto, and the kernel has IPVS", err
	}
	o, err = w.userspace(ctx, p)
	if err != nil {
		err = fmt.Errorf("engine: auto: the kernel has no IPVS (try modprobe ip_vs), and: %w", err)
	}
	return config.EngineUserspace, o, "engine: auto, and the kernel has no IPVS", err
}

// kernelGone returns an error while the kernel may hold services of lbd.
func (w wish) kernelGone(ctx context.Context, p place) error {
	if w.bound != config.EngineKernel {
		return nil
	}
	o, err := w.kernel(ctx, p)
	if errors.Is(err, ipvs.ErrNotAvailable) {
		return nil // they went away with the module
	}
	if err == nil {
		err = o.close()
	}
	return errors.Join(w.refuse(), err)
}

func (w wish) refuse() error {
	return fmt.Errorf("lbd's services are still in the %s engine, and the configuration says engine: %s: run lbd --clear first", w.bound, w.engine)
}

// engineError says what to do about a kernel that does not let lbd at IPVS.
func engineError(err error) error {
	if errors.Is(err, ipvs.ErrNotAvailable) {
		return fmt.Errorf("engine: kernel, and this kernel has no IPVS: %w "+
			"(try modprobe ip_vs; some kernels are built without it, and engine: userspace needs none)", err)
	}
	return err
}

// openKernel opens the kernel's IPVS, twice, so that a long dump for somebody who
// looks never delays a write.
func openKernel(ctx context.Context, p place) (_ *opened, err error) {
	var clients []*ipvs.Client
	closeAll := func() error {
		var errs []error
		for _, c := range clients {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()
	var options []ipvs.Option
	if p.name != "" {
		options = append(options, ipvs.WithNetNS(p.FD()))
	}
	for range 2 {
		c, err := ipvs.Open(options...)
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	info, err := clients[0].Info(ctx)
	if err != nil {
		return nil, err
	}
	return &opened{engine: clients[0], watched: clients[1], version: info.Version, close: closeAll}, nil
}
