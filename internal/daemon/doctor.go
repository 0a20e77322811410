package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// Doctor implements api.Backend.
func (d *Daemon) Doctor(ctx context.Context) (api.Diagnosis, error) {
	c := d.configuration()
	g := diagnosis{api.Diagnosis{
		Engine: string(d.engine), EngineReason: d.engineReason, EngineVersion: d.engineVersion,
	}}
	g.add(api.LevelOK, "engine", "%s (%s)", d.engine, d.engineReason)
	g.overhead(c.Userspace.Overhead, d.engine, func() (sched.Overhead, error) { return d.overhead.get(ctx) })
	if d.abilities == nil {
		g.add(api.LevelNote, "userspace engine", "not looked at: the %s engine runs", d.engine)
	} else {
		for _, a := range d.abilities() {
			if a.Err != nil {
				g.add(api.LevelNote, a.Name, "not on this host: %v", a.Err)
			} else {
				g.add(api.LevelOK, a.Name, "works here")
			}
		}
	}
	g.conntrack(d.host.Conntrack())
	warnings := d.host.Warnings(c)
	if d.warnings != nil {
		warnings = append(warnings, d.warnings()...)
	}
	for _, w := range warnings {
		g.add(api.LevelWarning, "host", "%s", w)
	}
	if len(warnings) == 0 {
		g.add(api.LevelOK, "host", "addresses, routes, forwarding and rp_filter are as the services need them")
	}
	return g.Diagnosis, nil
}

// diagnosis is an api.Diagnosis that is being made.
type diagnosis struct{ api.Diagnosis }

func (g *diagnosis) add(level, topic, format string, args ...any) {
	g.Findings = append(g.Findings, api.Finding{Level: level, Topic: topic, Text: fmt.Sprintf(format, args...)})
}

// overhead compares how the kernel weighs connections with how the userspace
// engine does, or would.
func (g *diagnosis) overhead(own sched.Overhead, engine config.Engine, kernel func() (sched.Overhead, error)) {
	has, err := kernel()
	switch {
	case errors.Is(err, ipvs.ErrNotAvailable):
		g.add(api.LevelNote, "overhead", "this kernel has no IPVS to compare with; userspace.overhead is %v", own)
	case err != nil:
		g.add(api.LevelNote, "overhead", "how this kernel's IPVS weighs connections could not be tried: %v", err)
	case has == own:
		g.add(api.LevelOK, "overhead", "this kernel's IPVS weighs connections by %v, and so does userspace.overhead", has)
	case engine == config.EngineKernel:
		g.add(api.LevelNote, "overhead", "this kernel's IPVS weighs connections by %v; userspace.overhead is %v, which the kernel engine does not use", has, own)
	default:
		g.add(api.LevelWarning, "overhead", "this kernel's IPVS weighs connections by %v, userspace.overhead by %v: the two engines choose differently", has, own)
	}
}

func (g *diagnosis) conntrack(count, limit int, err error) {
	switch {
	case err != nil:
		g.add(api.LevelNote, "conntrack", "%v", err)
	case limit == 0:
		g.add(api.LevelOK, "conntrack", "this host tracks no connections")
	default:
		g.add(api.LevelOK, "conntrack", "%d of %d entries (%d %%)", count, limit, count*100/limit)
	}
}
