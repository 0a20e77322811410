package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/sysnet"
	"github.com/lbd-project/lbd/ipvs"
)

// machine is the kernel's IPVS and the host around it, in one network namespace.
type machine struct {
	// engine and watched are two connections to the same table.
	engine, watched *ipvs.Client
	host            Host
	env             healthcheck.Env
	// version is the kernel's IPVS version.
	version string
	close   []func() error
}

// openMachine opens the engine and the host in a network namespace, lbd's own if
// netns is empty.
func openMachine(ctx context.Context, netns string) (_ *machine, err error) {
	m := &machine{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	ns, err := sysnet.OpenNamespace(netns)
	if err != nil {
		return nil, err
	}
	m.close = append(m.close, ns.Close)
	m.host = host{ns}
	var options []ipvs.Option
	if netns != "" {
		options = append(options, ipvs.WithNetNS(ns.FD()))
		m.env.Enter = ns.Do
	}
	for _, c := range []**ipvs.Client{&m.engine, &m.watched} {
		if *c, err = ipvs.Open(options...); err != nil {
			return nil, engineError(err)
		}
		m.close = append(m.close, (*c).Close)
	}
	info, err := m.engine.Info(ctx)
	if err != nil {
		return nil, engineError(err)
	}
	m.version = info.Version
	return m, nil
}

// engineError says what to do about a kernel that does not let lbd at IPVS.
func engineError(err error) error {
	if errors.Is(err, ipvs.ErrNotAvailable) {
		return fmt.Errorf("the kernel has no IPVS, and this version of lbd has no other engine: %w "+
			"(try modprobe ip_vs; some kernels are built without it)", err)
	}
	return err
}

// Close closes everything, the last opened first.
func (m *machine) Close() error {
	var errs []error
	for i := len(m.close) - 1; i >= 0; i-- {
		errs = append(errs, m.close[i]())
	}
	m.close = nil
	return errors.Join(errs...)
}
