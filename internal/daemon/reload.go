package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/ipvs"
)

// ConfigError is a configuration that cannot be used.
type ConfigError struct {
	// Lines are one error each, with file:line:col where there is a place.
	Lines []string
	// Err is why the file cannot be read; nil if it was.
	Err error
}

// Unwrap returns Err.
func (e *ConfigError) Unwrap() error { return e.Err }

// Error prints one error a line.
func (e *ConfigError) Error() string { return joinLines(e.Lines) }

// load reads and validates a configuration file. The bytes are read once: what
// is validated is what is used. Every error is a *ConfigError.
func load(file string) (*loaded, error) {
	data, err := config.ReadFile(file)
	if err != nil {
		return nil, &ConfigError{Lines: []string{err.Error()}, Err: err}
	}
	c, err := parse(file, data)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	return &loaded{Config: c, file: file, sha256: hex.EncodeToString(sum[:]), at: time.Now()}, nil
}

// parse validates a configuration. Every error is a *ConfigError.
func parse(name string, data []byte) (*config.Config, error) {
	c, err := config.Parse(name, data)
	var all config.Errors
	switch {
	case errors.As(err, &all):
		return nil, &ConfigError{Lines: all.Lines()}
	case err != nil:
		return nil, &ConfigError{Lines: []string{err.Error()}}
	}
	return c, nil
}

// suits says what the engine cannot do of a configuration.
func suits(e config.Engine, c *config.Config) error {
	lines := c.Refused[e].Lines()
	if len(lines) == 0 {
		return nil
	}
	for i := range lines {
		lines[i] += fmt.Sprintf(" (the %s engine runs here)", e)
	}
	return &ConfigError{Lines: lines}
}

// fixed says which keys differ that cannot change while lbd runs.
func fixed(old, next *config.Config) error {
	var lines []string
	check := func(key, was, is string) {
		if was != is {
			lines = append(lines, fmt.Sprintf("%s: changed from %q to %q, which needs a restart of lbd", key, was, is))
		}
	}
	check("engine", string(old.Engine), string(next.Engine))
	check("netns", old.NetNS, next.NetNS)
	check("socket.path", old.SocketPath, next.SocketPath)
	check("socket.group", old.SocketGroup, next.SocketGroup)
	check("state_file", old.StateFile, next.StateFile)
	was, is := old.Userspace, next.Userspace
	for _, k := range []struct {
		key     string
		was, is any
		format  string
	}{
		{"queues", queuesOf(was), queuesOf(is), "%d"},
		{"queue_base", was.QueueBase, is.QueueBase, "%d"},
		{"queue_length", was.QueueLength, is.QueueLength, "%d"},
		{"fail_open", was.FailOpen, is.FailOpen, "%t"},
		{"mark_mask", was.MarkMask, is.MarkMask, "%#08x"},
		{"ct_state_mask", was.CTStateMask, is.CTStateMask, "%#08x"},
		{"overhead", was.Overhead, is.Overhead, "%v"},
	} {
		check("userspace."+k.key, fmt.Sprintf(k.format, k.was), fmt.Sprintf(k.format, k.is))
	}
	if lines == nil {
		return nil
	}
	return &ConfigError{Lines: lines}
}

// able says what an engine that knows it cannot do of a configuration on this
// host. check may be nil.
func able(check func(*config.Config) []string, c *config.Config) error {
	if check == nil {
		return nil
	}
	if lines := check(c); len(lines) > 0 {
		return &ConfigError{Lines: lines}
	}
	return nil
}

// acceptable says what keeps a configuration from replacing the one that runs.
func (d *Daemon) acceptable(next *config.Config) error {
	if err := suits(d.engine, next); err != nil {
		return err
	}
	if err := fixed(d.configuration(), next); err != nil {
		return err
	}
	if err := able(d.check, next); err != nil {
		return err
	}
	return checkPaths(d.paths, next)
}

// reloadRequest asks for a reload; its outcome goes to the buffered reply. now ends
// all drains of servers that left the configuration.
type reloadRequest struct {
	now   bool
	reply chan reloadReply
}

type reloadReply struct {
	result api.ReloadResult
	err    error
}

// runReloads reloads on request and on SIGHUP, one at a time, until ctx is done.
func (d *Daemon) runReloads(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.hangup:
			d.reload(ctx, reloadRequest{})
		case r := <-d.reloads:
			result, err := d.reload(ctx, r)
			r.reply <- reloadReply{result, err}
		}
	}
}

// configuration returns the one that runs.
func (d *Daemon) configuration() *config.Config { return d.owner.view.Load().loaded.Config }

// reload loads the configuration file. A file that cannot be used changes
// nothing but the status. The error is errStopped: whether the file would have
// done is not known.
func (d *Daemon) reload(ctx context.Context, r reloadRequest) (api.ReloadResult, error) {
	select {
	case <-d.owner.synced:
		d.notifier.reloading()
		defer d.notifier.ready()
	default: // a READY now would end the start, which has not succeeded
	}
	next, err := load(d.owner.view.Load().loaded.file)
	if err == nil {
		err = d.acceptable(next.Config)
	}
	// The owner may still be at it when do returns early.
	done := make(chan api.ReloadResult, 1)
	if d.owner.do(ctx, d.stopped, func(ctx context.Context) {
		done <- d.owner.reload(ctx, r, next, err)
	}) != nil {
		return api.ReloadResult{}, errStopped
	}
	result := <-done
	if result.Reloaded {
		d.processors.suit(d.configuration)
		result.Warnings = slices.Concat(result.Warnings, next.Warnings, d.adviser.look(next.Config))
	}
	return result, nil
}

// reload switches to next, unless bad says why it cannot be used.
func (o *owner) reload(ctx context.Context, r reloadRequest, next *loaded, bad error) api.ReloadResult {
	if bad == nil {
		bad = o.switchTo(next)
	}
	if bad != nil {
		o.refuse(bad)
		var c *ConfigError
		if errors.As(bad, &c) {
			return api.ReloadResult{Errors: c.Lines}
		}
		return api.ReloadResult{Errors: []string{bad.Error()}}
	}
	if r.now {
		o.mem.drains = o.mem.drains.Due(time.Now())
	}
	report, err := o.pass(ctx)
	result := api.ReloadResult{Reloaded: true, Ops: len(report.Changes)}
	if err != nil {
		result.Errors = []string{err.Error()}
	}
	return result
}

// switchTo makes next the configuration. Servers that it lacks begin to drain.
// After an error nothing has changed.
func (o *owner) switchTo(next *loaded) error {
	err := o.setPaths(next.Config)
	if err == nil {
		err = o.monitor.Set(fleet.Probes(next.Config))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("checks: %w", err), o.setPaths(o.loaded.Config))
	}
	if o.fleet != nil {
		o.mem.drains = o.mem.drains.Leave(o.fleet, next.Config, o.held, time.Now())
		o.mem.health = o.mem.health.Join(o.fleet, next.Config)
	}
	o.loaded = next
	// First, so that the new ones hear of the rest.
	o.told.Change(next.Hooks)
	o.pruneAdmin()
	o.keys, o.subjects = make(map[*healthcheck.Probe]string), make(map[*healthcheck.Probe]string)
	o.reloadErr = ""
	o.mirror.setInterval(next.MirrorInterval)
	o.log.Info("configuration loaded", "file", next.file, "sha256", next.sha256,
		"services", len(next.VirtualServices))
	o.events.add(api.Event{Kind: api.EventReload, State: api.StateLoaded, Text: "configuration loaded", Reason: fmt.Sprintf("%s, sha256 %.12s", next.file, next.sha256)})
	return nil
}

// held reports whether the table holds a real server, or may do so: it has
// acknowledged it, or the mirror has seen it.
func (o *owner) held(k ipvs.DestinationKey) bool {
	if _, ok := o.announced[k]; ok {
		return true
	}
	c := o.mirror.counts.Load()
	_, ok := c.conns(k)
	return ok || c == nil
}

// refuse notes that a reload was refused.
func (o *owner) refuse(err error) {
	o.reloadErr = err.Error()
	o.events.add(api.Event{Kind: api.EventReload, State: api.StateRefused, Text: "reload refused, the running configuration stays", Reason: o.reloadErr})
	o.log.Error("reload refused, the running configuration stays", "err", err)
	o.publish()
}
