package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/internal/reconcile"
	"github.com/lbd-project/lbd/internal/sysnet"
	"github.com/lbd-project/lbd/internal/userspace"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/internal/version"
	"github.com/lbd-project/lbd/ipvs"
)

// The defaults of Options.
const (
	DefaultConfigFile = "/etc/lbd/lbd.yaml"
	DefaultRunDir     = "/run/lbd"
)

// exitTimeout bounds what on_exit: clear may take.
const exitTimeout = 20 * time.Second

// Options are what the daemon is told by its command line.
type Options struct {
	// ConfigFile is the path of lbd.yaml, RunDir that of what lbd remembers.
	ConfigFile, RunDir string
	// Logger must not be nil.
	Logger *slog.Logger
	// Hangup asks for a reload with each value; it may be nil.
	Hangup <-chan os.Signal
}

// Run runs the daemon until ctx is done. The error is a *ConfigError if the
// configuration cannot be used, and a *memory.LockedError if another lbd runs.
func Run(ctx context.Context, o Options) (err error) {
	restoreGC := delayGC()
	defer restoreGC()
	cfg, err := load(o.ConfigFile)
	if err != nil {
		return err
	}
	for _, w := range cfg.Warnings {
		o.Logger.Warn(w)
	}
	gid, err := groupID(cfg.SocketGroup)
	if err != nil {
		return err
	}
	store, err := memory.Open(o.RunDir, o.Logger)
	if err != nil {
		return err
	}
	defer joinClose(&err, store)
	if err := checkStateFile(store, cfg.StateFile); err != nil {
		return err
	}
	mem, err := store.Load()
	if err != nil {
		return err
	}
	l, _ := recall(mem, time.Now())
	if !l.empty() && l.netns != cfg.NetNS {
		return fmt.Errorf("lbd still owns services, addresses or sysctls in network namespace %q, and the configuration says %q: run lbd --clear first",
			l.netns, cfg.NetNS)
	}
	m, err := openMachine(ctx, cfg.NetNS, wish{
		engine: cfg.Engine, bound: l.bound(), kernel: openKernel,
		userspace: openUserspace(cfg.Userspace, l.marks, store.EngineFile(), o.Logger),
	}, o.Logger)
	if err != nil && ctx.Err() != nil {
		return nil // stopped, before there was anything to stop
	}
	if err != nil {
		return err
	}
	defer joinClose(&err, m)
	if err := suits(m.name, cfg.Config); err != nil {
		return err
	}
	if err := able(m.check, cfg.Config); err != nil {
		return err
	}
	if err := checkPaths(m.paths, cfg.Config); err != nil {
		return err
	}
	restoreThreads := addThreads(m.threads)
	defer restoreThreads()
	admin, closeAdmin, err := openOverrides(cfg.Config, o.Logger)
	if err != nil {
		return err
	}
	defer joinClose(&err, closeAdmin)
	listener, err := api.Listen(cfg.SocketPath, gid)
	if err != nil {
		return err
	}
	// The server closes it; this is for errors before that.
	defer listener.Close()

	d, err := assemble(parts{
		log: o.Logger, opened: m.opened, name: m.name, reason: m.reason, host: m.host, env: m.env, paths: m.paths, store: store,
		notifier: newNotifier(o.Logger), loaded: cfg, mem: mem, admin: admin, hangup: o.Hangup,
	})
	if err != nil {
		return err
	}
	d.processors = newProcessors(m.threads)
	defer d.processors.restore()
	d.settled = func() {
		restoreGC()
		d.processors.suit(d.configuration)
	}
	o.Logger.Info("starting", "version", version.String(), "config", cfg.file,
		"engine", m.name, "engine_version", m.version, "reason", m.reason)
	server := api.NewServer(d, api.Options{Logger: o.Logger, Allow: api.AllowGroup(gid)})
	return d.exit(ctx, d.run(ctx, listener, server))
}

// exit does what on_exit says, after run returned an error or nil. What failed
// clears nothing: it will be started again, and until then the table works.
func (d *Daemon) exit(ctx context.Context, failed error) error {
	l := d.owner.loaded
	if failed != nil || l.OnExit != config.OnExitClear {
		d.log.Info("stopped, the table stays", "on_exit", l.OnExit)
		return failed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exitTimeout)
	defer cancel()
	return d.owner.clear(ctx)
}

// Clear removes from the host what a dead lbd left. It fails with a
// *memory.LockedError while one lives.
func Clear(ctx context.Context, runDir string, log *slog.Logger) (err error) {
	store, err := memory.Open(runDir, log)
	var locked *memory.LockedError
	if errors.As(err, &locked) {
		return fmt.Errorf("%w: stop it first, or set on_exit: clear", err)
	}
	if err != nil {
		return err
	}
	defer joinClose(&err, store)
	mem, err := store.Load()
	if err != nil {
		return err
	}
	o := &owner{log: log, store: store, reconciler: &reconcile.Reconciler{Logger: log}}
	if o.mem, _ = recall(mem, time.Now()); o.mem.empty() {
		return clearForgotten(ctx, runDir, store, log)
	}
	ns, err := sysnet.OpenNamespace(o.mem.netns)
	if errors.Is(err, fs.ErrNotExist) {
		// Without this nothing would ever let lbd start in another one.
		log.Warn("the network namespace is gone, and all that lbd had there", "netns", o.mem.netns)
		o.mem = &ledger{}
		return o.remember()
	}
	if err != nil {
		return err
	}
	defer joinClose(&err, ns)
	m, err := openMachine(ctx, o.mem.netns, wish{
		engine: cmp.Or(o.mem.engine, config.EngineKernel), kernel: openKernel,
		userspace: reopenUserspace(o.mem.marks, store.EngineFile(), log),
	}, log)
	switch {
	case errors.Is(err, ipvs.ErrNotAvailable):
		// The table is gone with the module; addresses are not.
		o.engine, o.host = absent{err: err}, host{Namespace: ns}
		paths := openPaths(place{ns, o.mem.netns}, log)
		defer joinClose(&err, paths)
		o.paths = paths
	case err != nil:
		return err
	default:
		defer joinClose(&err, m)
		o.engine, o.host, o.clearEngine, o.paths = m.engine, m.host, m.clear, m.paths
	}
	return o.clear(ctx)
}

// clearForgotten clears where the memory has nothing. The userspace engine has a
// file of its own and rules of a fixed name, which are there still when the memory
// is lost; in which namespace is lost with it, so that lbd's own is searched.
func clearForgotten(ctx context.Context, runDir string, store *memory.Store, log *slog.Logger) error {
	found, err := userspace.ClearLeft(ctx, userspace.Options{Store: store.EngineFile(), Logger: log})
	if err == nil {
		err = clearForgottenPaths(ctx, log)
	}
	switch {
	case err != nil:
		return fmt.Errorf("clear what the memory does not tell of: %w", err)
	case found:
		log.Warn("cleared a userspace engine that the memory did not tell of: addresses on a VIP interface may be left", "run_dir", runDir)
	default:
		log.Info("nothing to clear", "run_dir", runDir)
	}
	return nil
}

// clearForgottenPaths clears the rules of checks through services.
func clearForgottenPaths(ctx context.Context, log *slog.Logger) (err error) {
	p := ruleset.OpenPaths(ruleset.PathOptions{Logger: log})
	defer joinClose(&err, p)
	left, err := p.Left()
	if err != nil || !left {
		return err
	}
	log.Warn("clearing rules of checks that the memory did not tell of")
	return p.Remove(ctx)
}

// absent is an engine that is not there.
type absent struct {
	Engine
	err error
}

// Table returns the error.
func (a absent) Table(context.Context) ([]ipvs.TableEntry, error) { return nil, a.err }

// SetTimeouts returns the error.
func (a absent) SetTimeouts(context.Context, ipvs.Timeouts) error { return a.err }

// groupID returns the ID of a group, that of root for none.
func groupID(name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("socket.group: %w: create it (groupadd --system %s) or name another", err, name)
	}
	return strconv.Atoi(g.Gid)
}

func joinClose(err *error, c interface{ Close() error }) { *err = errors.Join(*err, c.Close()) }
