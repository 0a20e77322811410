package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
)

// keepInterval is how long rules that another program deleted may be missing:
// until then a check asks the real server's own address, and cannot tell.
const keepInterval = time.Second

// Paths makes packets of checks go through services, with either engine. A
// ruleset.Paths is one. Its methods are called concurrently.
type Paths interface {
	healthcheck.Paths
	// Able says why the host cannot have paths, with tunnels or without.
	Able(tunnels bool) error
	// Set makes the paths those of keys, and leaves nothing behind without any.
	Set(ctx context.Context, keys []ruleset.PathKey) error
	// Keep puts back what others deleted.
	Keep(ctx context.Context) error
	// Remove deletes what there is, also what an earlier process left.
	Remove(ctx context.Context) error
}

// pathsOf returns the paths that the checks of a configuration need.
func pathsOf(c *config.Config) []ruleset.PathKey {
	var keys []ruleset.PathKey
	for i := range c.VirtualServices {
		for rs := range c.VirtualServices[i].Servers() {
			for _, p := range rs.Probes {
				if p.Through.Service.IsValid() {
					keys = append(keys, ruleset.PathKey{Through: p.Through, Server: p.Target.Addr()})
				}
			}
		}
	}
	return keys
}

var errNoPaths = errors.New("there is no way for checks through services here")

// checkPaths says what the host cannot do of a configuration's checks through
// services.
func checkPaths(p Paths, c *config.Config) error {
	keys := pathsOf(c)
	if len(keys) == 0 {
		return nil
	}
	if p == nil {
		return errNoPaths
	}
	tunnels := false
	for _, k := range keys {
		tunnels = tunnels || k.Tunnel
	}
	if err := p.Able(tunnels); err != nil {
		return &ConfigError{Lines: []string{fmt.Sprintf("check: to: service: %v", err)}}
	}
	return nil
}

// setPaths makes the paths those of a configuration.
func (o *owner) setPaths(c *config.Config) error {
	keys := pathsOf(c)
	if o.paths == nil {
		if len(keys) > 0 {
			return errNoPaths
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	if len(keys) == 0 {
		return o.removePaths(ctx)
	}
	if !o.mem.paths {
		o.mem.paths = true
		// A full disk must not keep lbd from checking: the next pass tells of it.
		_ = o.remember()
	}
	return o.paths.Set(ctx, keys)
}

// removePaths deletes what the memory says is there.
func (o *owner) removePaths(ctx context.Context) error {
	if o.paths == nil || !o.mem.paths {
		return nil
	}
	if err := o.paths.Remove(ctx); err != nil {
		return err
	}
	o.mem.paths = false
	return nil
}

// keepPaths looks after the paths until ctx is done.
func keepPaths(ctx context.Context, p Paths, log *slog.Logger) error {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := p.Keep(ctx)
		if err == nil || ctx.Err() != nil {
			said = ""
			continue
		}
		// Once and not each second.
		if s := err.Error(); s != said {
			log.Warn("checks through services may ask the real servers' own addresses", "err", err)
			said = s
		}
	}
}
