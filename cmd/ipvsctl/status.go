package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lbd-project/lbd/internal/api"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the state of lbd",
		Long: `Show the state of lbd: engine, configuration, how well the table follows it,
whether checks begin on time, services and real servers by state, and warnings.

The exit status is 1 if the last pass over the table failed.`,
		Example:           "  ipvsctl status -o json | jq .real_servers.down",
		Args:              args(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			if a.text() {
				a.printStatus(s)
			}
			if s.Sync.LastError != "" {
				return errors.New("the last pass over the table failed: " + s.Sync.LastError)
			}
			return nil
		},
	}
}

func (a *app) printStatus(s api.Status) {
	t := table{}
	t.row("lbd:", fmt.Sprintf("%s, pid %d, up %s", s.Version, s.PID, span(s.UptimeSeconds)))
	t.row("engine:", engineLine(s))
	t.row("configuration:", fmt.Sprintf("%s, loaded %s, sha256 %.12s", s.ConfigFile, since(s.Time, s.ConfigLoaded), s.ConfigSHA256))
	t.row("last sync:", syncLine(s.Sync))
	t.row("drift:", driftLine(s))
	t.row("counts:", mirrorLine(s.Mirror))
	t.row("checks:", checksLine(s.Checks))
	t.row("virtual services:", countsLine(s.Services))
	t.row("real servers:", countsLine(s.RealServers))
	if text := policiesLine(s.Policies); text != "" {
		t.row("policies:", text)
	}
	if len(s.Sysctls) > 0 {
		var settings []string
		for _, name := range slices.Sorted(maps.Keys(s.Sysctls)) {
			settings = append(settings, fmt.Sprintf("%s=%d", name, s.Sysctls[name]))
		}
		t.row("sysctls:", strings.Join(settings, " "))
	}
	if len(s.Foreign) > 0 {
		t.row("foreign services:", strings.Join(s.Foreign, ", "))
	}
	if s.Overrides.RealServers > 0 {
		t.row("admin states:", overridesLine(s.Overrides))
	}
	for i, h := range s.Hooks {
		title := ""
		if i == 0 {
			title = "notify:"
		}
		t.row(title, hookLine(h))
	}
	t.write(a.out)
	if s.Overrides.LastError != "" {
		a.printWarning("admin states are not kept over a restart: " + s.Overrides.LastError)
	}
	if s.LastReloadError != "" {
		for line := range strings.SplitSeq(s.LastReloadError, "\n") {
			a.printWarning("the last reload was refused: " + line)
		}
	}
	for _, w := range s.Warnings {
		a.printWarning(w)
	}
}

func (a *app) printWarning(text string) {
	fmt.Fprintln(a.out, a.paintWarning("warning: "+printable(text)))
}

func engineLine(s api.Status) string {
	version := s.EngineVersion
	if s.Engine == "kernel" {
		version = "IPVS " + version
	}
	return fmt.Sprintf("%s, %s (%s)", s.Engine, version, s.EngineReason)
}

func syncLine(s api.Sync) string {
	text := "never"
	if s.AgeSeconds >= 0 {
		text = span(s.AgeSeconds) + " ago"
	}
	text += fmt.Sprintf("; %s, %s", pluralOf(s.Passes, "pass", "passes"), plural(s.Ops, "operation"))
	if s.FailedOps > 0 {
		text += fmt.Sprintf(", %d failed", s.FailedOps)
	}
	return text + stuckText(s.HeartbeatSeconds)
}

func driftLine(s api.Status) string {
	if s.Sync.Drift == 0 {
		return "none"
	}
	text := plural(s.Sync.Drift, "repair")
	if s.Sync.LastDrift != "" {
		text += "; last: " + s.Sync.LastDrift
	}
	if !s.Sync.LastDriftTime.IsZero() {
		text += ", " + since(s.Time, s.Sync.LastDriftTime)
	}
	return text
}

// stuckText says that a part of lbd makes no progress.
func stuckText(heartbeat float64) string {
	if heartbeat < stuckAfter {
		return ""
	}
	return "; no progress for " + span(heartbeat)
}

// stuckAfter is the time, in seconds, after which a heartbeat of each second is
// missed.
const stuckAfter = 5

// checksLine says how many checks there are and how late they begin.
func checksLine(c api.Checks) string {
	if c.Probes == 0 {
		return "none"
	}
	text := plural(c.Probes, "probe")
	if c.Results > 0 {
		text += fmt.Sprintf(", begun %s late at most, %s on average", latency(c.LagMaxSeconds), latency(c.LagSeconds))
	}
	if c.Waiting > 0 {
		text += fmt.Sprintf(", %d waiting", c.Waiting)
	}
	if c.Overdue > 0 {
		text += fmt.Sprintf(", %d overdue (they ignore their deadline)", c.Overdue)
	}
	if c.Skipped > 0 {
		text += fmt.Sprintf(", %d left out", c.Skipped)
	}
	return text + stuckText(c.HeartbeatSeconds)
}

// policiesLine leaves out what does not happen.
func policiesLine(p api.Policies) string {
	var words []string
	for _, w := range []struct {
		n         int
		one, many string
	}{
		{p.QuorumLost, "virtual service has lost its quorum", "virtual services have lost their quorum"},
		{p.BackupIn, "is on backup servers", "are on backup servers"},
		{p.HealthIgnored, "virtual service ignores health", "virtual services ignore health"},
		{p.Ramping, "real server is on the way to its weight", "real servers are on the way to their weight"},
	} {
		if w.n > 0 {
			words = append(words, pluralOf(w.n, w.one, w.many))
		}
	}
	return strings.Join(words, ", ")
}

func hookLine(h api.Hook) string {
	text := fmt.Sprintf("%s %s: %d told", h.Kind, printable(h.Name), h.Told)
	if h.Waiting > 0 {
		text += fmt.Sprintf(", %d waiting", h.Waiting)
	}
	if h.Lost > 0 {
		text += fmt.Sprintf(", %d lost", h.Lost)
	}
	return text
}

func overridesLine(o api.Overrides) string {
	file := o.File
	if file == "" {
		file = "not kept over a restart"
	}
	return plural(o.RealServers, "real server") + " (" + file + ")"
}

func mirrorLine(m api.Mirror) string {
	age := func(seconds float64) string {
		if seconds < 0 {
			return "not read yet"
		}
		return span(seconds) + " old"
	}
	text := age(m.CountsAgeSeconds) + "; statistics " + age(m.StatsAgeSeconds)
	if m.LastError != "" {
		text += "; " + m.LastError
	}
	return text
}

// countsLine leaves out the states that nobody is in.
func countsLine(c api.Counts) string {
	var states []string
	for _, s := range []struct {
		n    int
		name string
	}{{c.Up, "up"}, {c.Down, "down"}, {c.Pending, "pending"}, {c.Draining, "draining"},
		{c.Drained, "drained"}, {c.Disabled, "disabled"}, {c.Standby, "standby"}, {c.Ejected, "ejected"}} {
		if s.n > 0 {
			states = append(states, fmt.Sprintf("%d %s", s.n, s.name))
		}
	}
	if len(states) == 0 {
		return strconv.Itoa(c.Total)
	}
	return fmt.Sprintf("%d: %s", c.Total, strings.Join(states, ", "))
}
