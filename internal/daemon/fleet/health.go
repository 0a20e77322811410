package fleet

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
)

// Join returns the memory for a change of configuration: servers of old that had no
// check and get one that starts down are known, too. They are up.
func (h Health) Join(old *Fleet, next *config.Config) Health {
	wait := make(map[ipvs.DestinationKey]bool)
	for i := range next.VirtualServices {
		vs := &next.VirtualServices[i]
		for rs := range vs.Servers() {
			if slices.ContainsFunc(rs.Probes, func(p healthcheck.Probe) bool { return p.Start == healthcheck.Down }) {
				wait[ipvs.DestinationKey{Service: vs.ServiceKey, Address: rs.Address}] = true
			}
		}
	}
	if len(wait) == 0 {
		return h
	}
	out := make(Health, len(h)+len(wait))
	maps.Copy(out, h)
	for i := range old.Services {
		s := &old.Services[i]
		for j := range s.Servers {
			k := ipvs.DestinationKey{Service: s.ServiceKey, Address: s.Servers[j].Address}
			if wait[k] && s.Servers[j].Health == Unchecked {
				out[k] = false
			}
		}
	}
	return out
}

// verdict is what Health says of a server.
type verdict struct{ down, known bool }

// successor makes the Health of a decision from that of the last one. Mostly they are
// the same, and the last one is used again.
type successor struct {
	last, changed Health
	// known counts the servers that the last one has, too.
	known int
}

// note notes whether a server is down, and what the last Health says of it.
func (s *successor) note(k ipvs.DestinationKey, last verdict, down bool) {
	if last.known {
		s.known++
	}
	if !last.known || last.down != down {
		s.changed[k] = down
	}
}

// next returns the Health that a decision leaves for the next, all of whose servers
// have been noted.
func (s *successor) next(f *Fleet) Health {
	switch {
	case s.known != len(s.last): // some left
		return f.health(s.last)
	case len(s.changed) == 0 && s.last != nil:
		return s.last
	case s.known == 0:
		return s.changed
	}
	h := maps.Clone(s.last)
	maps.Copy(h, s.changed)
	return h
}

// health returns the Health of all servers, of those that drain as the last one has
// it.
func (f *Fleet) health(last Health) Health {
	h := make(Health, len(last))
	for i := range f.Services {
		s := &f.Services[i]
		for j := range s.Servers {
			sv := &s.Servers[j]
			k := ipvs.DestinationKey{Service: s.ServiceKey, Address: sv.Address}
			if sv.State == Draining {
				if down, ok := last[k]; ok {
					h[k] = down
				}
			} else if len(sv.Probes) > 0 {
				h[k] = sv.Health == Down
			}
		}
	}
	return h
}

// health is what the checks and the agent say of a server.
type health struct {
	state  State
	reason string
	// unproven is down without a failure: the checks start so.
	unproven bool
}

func (h health) down() bool { return h.state == Down }

// judge turns the states of all probes of a server into its own. What is not known
// yet counts as what the server was before. An agent can take a server down but
// never lift what a check says.
func (d *decider) judge(rs *config.RealServer, last verdict) health {
	wasDown, known := last.down, last.known
	d.statuses = d.statuses[:0]
	for i := range rs.Probes {
		st := d.Probe(&rs.Probes[i])
		if known && onlyStarted(&rs.Probes[i], &st, wasDown) {
			st.State = healthcheck.Pending
		}
		d.statuses = append(d.statuses, st)
	}
	h := d.check(rs, wasDown)
	if h.down() {
		return h
	}
	for i := range rs.Probes {
		p, st := &rs.Probes[i], &d.statuses[i]
		switch {
		case st.Advice.Health == healthcheck.SaysDown:
			return health{state: Down, reason: "failed: " + says(p, st, "down")}
		case p.Advisory && wasDown && st.Checks == 0:
			return health{state: Down, reason: "failed before; no word of " + Label(*p) + " yet"}
		}
	}
	return h
}

// warning returns what the checks of the server that has been judged warn of, and
// whether one has had no result yet.
func (d *decider) warning(rs *config.RealServer) (text string, unheard bool) {
	for i := range rs.Probes {
		st := &d.statuses[i]
		unheard = unheard || st.Checks == 0
		if st.Warning != "" {
			text = join(text, Label(rs.Probes[i])+": "+st.Warning)
		}
	}
	return text, unheard
}

// onlyStarted reports whether a state that is not that of the server so far is the
// one that the probe starts with, and no result has borne it out: how a probe starts
// is for servers of which nothing is known. So neither a restart of lbd nor a check
// that is added takes a server out, or puts one back that is down.
func onlyStarted(p *healthcheck.Probe, st *healthcheck.Status, wasDown bool) bool {
	if wasDown {
		return p.Start == healthcheck.Up && st.State == healthcheck.Up && st.Failures == st.Checks
	}
	return p.Start == healthcheck.Down && st.State == healthcheck.Down && st.Failures == 0
}

// check judges by the checks alone.
func (d *decider) check(rs *config.RealServer, wasDown bool) health {
	state, checked := d.evaluate(rs)
	switch {
	case !checked:
		return health{state: Unchecked, reason: "no check"}
	case state == healthcheck.Down:
		return d.failure(rs)
	case state == healthcheck.Pending && wasDown:
		return health{state: Down, reason: "failed before; no result of a check yet"}
	case state == healthcheck.Pending:
		return health{state: Pending, reason: "no result of a check yet, counts as up"}
	}
	return health{state: Up, reason: "healthy"}
}

// evaluate returns what the rule makes of the checks, and whether there are any.
func (d *decider) evaluate(rs *config.RealServer) (state healthcheck.State, checked bool) {
	if rs.Rule != nil {
		return rs.Rule.Eval(func(i int) healthcheck.State { return d.statuses[i].State }), true
	}
	state = healthcheck.Up
	for i := range rs.Probes {
		if rs.Probes[i].Advisory {
			continue
		}
		checked = true
		switch d.statuses[i].State {
		case healthcheck.Down:
			return healthcheck.Down, true
		case healthcheck.Pending:
			state = healthcheck.Pending
		}
	}
	return state, checked
}

// failure says which check took a server down: the first one that is.
func (d *decider) failure(rs *config.RealServer) health {
	h := health{state: Down, reason: "failed", unproven: true}
	for i := range rs.Probes {
		p, st := &rs.Probes[i], &d.statuses[i]
		if p.Advisory || st.State != healthcheck.Down {
			continue
		}
		if h.reason == "failed" {
			h.reason = failure(p, st)
		}
		h.unproven = h.unproven && st.Failures == 0
	}
	return h
}

func failure(p *healthcheck.Probe, st *healthcheck.Status) string {
	switch {
	case st.LastErr != nil:
		return fmt.Sprintf("failed: %s: %v", Label(*p), st.LastErr)
	case st.Checks == 0 && st.Streak == 0:
		return fmt.Sprintf("down until its checks pass: %s: no result yet", Label(*p))
	}
	return fmt.Sprintf("failed: %s: recovering, passed %d of %d", Label(*p), st.Streak, p.Rise)
}

// says prints what a probe says of its target, with the target's own reason.
func says(p *healthcheck.Probe, st *healthcheck.Status, what string) string {
	text := Label(*p) + " says " + what
	if st.Advice.Reason != "" {
		text += " (" + st.Advice.Reason + ")"
	}
	return text
}
