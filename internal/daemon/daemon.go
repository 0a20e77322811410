package daemon

import (
	"context"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/daemon/notify"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/internal/reconcile"
	"github.com/lbd-project/lbd/internal/userspace"
	"github.com/lbd-project/lbd/internal/version"
	"github.com/lbd-project/lbd/ipvs"
)

var _ api.Backend = (*Daemon)(nil)

// Daemon is a running lbd. It is the backend of the control API.
type Daemon struct {
	log      *slog.Logger
	engine   config.Engine
	watched  Engine
	host     Host
	monitor  *healthcheck.Monitor
	mirror   *mirror
	owner    *owner
	notifier *notifier
	adviser  *adviser
	started  time.Time

	engineReason, engineVersion string
	// stateWarnings is what was lost of what operators said before this start.
	stateWarnings []string
	// serve, warnings and check are the engine's; see opened.
	serve    func(context.Context) error
	warnings func() []string
	check    func(*config.Config) []string
	paths    Paths
	// abilities is the engine's, too, explainer its explain.
	abilities func() []userspace.Ability
	explainer func(context.Context, ipvs.ServiceKey) (userspace.Explanation, error)
	// overhead is how the kernel weighs connections.
	overhead overheadProbe

	hangup  <-chan os.Signal
	reloads chan reloadRequest
	// settled, if not nil, is called when the table has been tried.
	settled func()
	// processors may be nil.
	processors *processors
	// stopped is closed when the owner takes no more requests.
	stopped chan struct{}
}

// parts are what a Daemon is made of.
type parts struct {
	log *slog.Logger
	*opened
	host     Host
	store    Store
	notifier *notifier
	// name is the engine's, reason why it is that one.
	name   config.Engine
	reason string
	// env is handed to the checks.
	env healthcheck.Env
	// paths are the ways of checks through services; nil for none.
	paths Paths
	// loaded is the configuration, mem what the store held.
	loaded *loaded
	mem    memory.Memory
	// admin is what operators said, as it was kept.
	admin  kept
	hangup <-chan os.Signal
	// command runs commands of quorums; nil means as programs of this host.
	command runCommand
}

// assemble makes a Daemon that does nothing before run.
func assemble(p parts) (*Daemon, error) {
	d := &Daemon{
		log:      p.log,
		engine:   p.name,
		watched:  p.watched,
		host:     p.host,
		notifier: p.notifier,
		started:  time.Now(),
		hangup:   p.hangup,
		reloads:  make(chan reloadRequest),
		stopped:  make(chan struct{}),

		engineReason:  p.reason,
		engineVersion: p.version,
		serve:         p.run,
		warnings:      p.warnings,
		check:         p.check,
		paths:         p.paths,
		abilities:     p.abilities,
		explainer:     p.explain,
		stateWarnings: p.admin.warnings,
	}
	o := &owner{
		log:         p.log,
		engine:      p.engine,
		clearEngine: p.clear,
		repairs:     p.repairs,
		host:        p.host,
		paths:       p.paths,
		store:       p.store,
		told:        notify.New(p.log, p.env.Programs),
		notifier:    p.notifier,
		requests:    make(chan func(context.Context)),
		dirty:       make(chan struct{}, 1),
		counted:     make(chan struct{}, 1),
		tried:       make(chan struct{}),
		synced:      make(chan struct{}),
		loaded:      p.loaded,
		admin:       newOverrides(p.admin, p.loaded.StateFile),
		keys:        make(map[*healthcheck.Probe]string),
		subjects:    make(map[*healthcheck.Probe]string),
		weightNews:  make(map[ipvs.DestinationKey]weightNews),
		warned:      make(map[ipvs.DestinationKey]warned),
	}
	o.events = newEventRing(o.told.Tell)
	o.told.Change(p.loaded.Hooks)
	o.hooks = newQuorumHooks(p.log, p.command)
	if p.command == nil {
		o.hooks.run = commandsIn(p.env.Enter, p.env.Programs).run
	}
	o.mem, o.since = recall(p.mem, d.started)
	o.mem.netns = p.loaded.NetNS
	o.mem.bind(p.name, p.loaded.Userspace)
	o.reconciler = &reconcile.Reconciler{Claim: o.own, Logger: p.log}
	o.monitor = healthcheck.New(healthcheck.Options{
		Env:    p.env,
		Logger: p.log,
		// What changed is looked up by the owner: a token is enough, and never
		// holds up a check.
		Notify:   func(healthcheck.Change) { signal(o.dirty) },
		Parallel: parallelChecks(),
	})
	if err := o.setPaths(p.loaded.Config); err != nil {
		return nil, err
	}
	if err := o.monitor.Set(fleet.Probes(p.loaded.Config)); err != nil {
		return nil, err
	}
	o.monitor.Recall(func(p *healthcheck.Probe) healthcheck.Advice { return o.mem.advice[subject(p)] })
	o.observer = newObserver(p.handshakes, p.log, func() { signal(o.dirty) })
	o.mirror = newMirror(p.watched, p.log, func() { signal(o.counted) })
	o.mirror.setInterval(p.loaded.MirrorInterval)
	o.events.add(api.Event{Kind: api.EventStart, Text: "lbd " + version.String() + " started", Reason: "engine " + string(p.name) + ": " + p.reason})
	o.pruneAdmin()
	o.publish()
	d.owner, d.monitor, d.mirror = o, o.monitor, o.mirror
	d.adviser = &adviser{host: p.host, log: p.log}
	return d, nil
}

// run runs the daemon until ctx is done. l may be nil.
func (d *Daemon) run(ctx context.Context, l net.Listener, server *api.Server) error {
	tasks := []task{
		{"owner", func(ctx context.Context) error {
			defer close(d.stopped)
			return d.owner.run(ctx)
		}},
		{"mirror", d.onceTried(d.mirror.run)},
		{"checks", d.onceTried(d.monitor.Run)},
		{"reloads", d.runReloads},
		{"advice", d.onceTried(d.runAdvice)},
		{"commands", d.owner.hooks.work},
		{"notifications", d.onceTried(func(ctx context.Context) error { return d.owner.told.Run(ctx, d.stopped) })},
		{"watchdog", d.runWatchdog},
		{"readiness", d.runReadiness},
	}
	if d.owner.observer != nil {
		tasks = append(tasks, task{"handshakes", d.onceTried(d.owner.observer.run)})
	}
	if d.serve != nil {
		tasks = append(tasks, task{"engine", d.serve})
	}
	if d.paths != nil {
		tasks = append(tasks, task{"paths of checks", func(ctx context.Context) error { return keepPaths(ctx, d.paths, d.log) }})
	}
	if d.settled != nil {
		tasks = append(tasks, task{"settling", d.onceTried(func(ctx context.Context) error {
			d.settled()
			<-ctx.Done()
			return nil
		})})
	}
	if l != nil {
		tasks = append(tasks, task{"control socket", func(ctx context.Context) error { return server.Run(ctx, l) }})
	}
	return runTasks(ctx, tasks...)
}

// onceTried returns a task that waits until the table has been tried. The first
// results of checks must find the table as it was left, and neither thousands of
// route look-ups nor readings of a table that is being filled may hold up a
// start.
func (d *Daemon) onceTried(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-d.owner.tried:
			return run(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// runReadiness tells the service manager once the table has followed the
// configuration for the first time.
func (d *Daemon) runReadiness(ctx context.Context) error {
	select {
	case <-d.owner.synced:
		d.notifier.ready()
		d.log.Info("ready", "pid", os.Getpid())
		<-ctx.Done()
	case <-ctx.Done():
	}
	d.notifier.stopping()
	return nil
}
