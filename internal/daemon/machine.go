package daemon

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/command"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/sysnet"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
)

// machine is an engine and the host around it, in one network namespace.
type machine struct {
	*opened
	// name is the engine's, reason why it is that one.
	name   config.Engine
	reason string
	host   Host
	paths  *ruleset.Paths
	env    healthcheck.Env
	ns     *sysnet.Namespace
}

// openMachine opens the engine that is wished for and the host in a network
// namespace, lbd's own if netns is empty.
func openMachine(ctx context.Context, netns string, w wish, log *slog.Logger) (*machine, error) {
	ns, err := sysnet.OpenNamespace(netns)
	if err != nil {
		return nil, err
	}
	m := &machine{ns: ns}
	m.name, m.opened, m.reason, err = w.choose(ctx, place{ns, netns})
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	m.host = host{
		Namespace: ns, sysctls: m.sysctls, forwards: m.name == config.EngineUserspace,
		programs: newPrograms(command.Exposed),
	}
	m.paths = openPaths(place{ns, netns}, log)
	m.env.Paths, m.env.Programs = m.paths, command.NewReads()
	if netns != "" {
		m.env.Enter = ns.Do
	}
	return m, nil
}

// Close closes the engine and the namespace.
func (m *machine) Close() error { return errors.Join(m.paths.Close(), m.close(), m.ns.Close()) }

// openPaths returns the paths of a namespace, without changing anything there.
func openPaths(p place, log *slog.Logger) *ruleset.Paths {
	o := ruleset.PathOptions{Logger: log}
	if p.name != "" {
		o.NetNS = p.FD()
	}
	return ruleset.OpenPaths(o)
}
