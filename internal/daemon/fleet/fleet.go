package fleet

import (
	"cmp"
	"strings"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
)

// Input is everything that a decision depends on.
type Input struct {
	Config *config.Config
	// Now is the time of the decision; only slow starts and ramps ask for it.
	Now time.Time
	// Probe returns the status of a probe of Config; the zero Status, which is
	// Pending, if nothing is known of it. It gets the pointer into Config, so
	// that the caller need not make the key of each probe each time.
	Probe func(p *healthcheck.Probe) healthcheck.Status
	// Health is what the last decision said of each checked server, and Memory
	// the rest that it left.
	Health Health
	Memory Memory
	// Handshakes says how connections to a server began since a time, which is zero
	// for any; nil where nobody counts them.
	Handshakes func(k ipvs.DestinationKey, since time.Time) Handshakes
	// Admin is what operators said of servers.
	Admin Overrides
	// Drains are the servers that left the configuration and still have
	// connections.
	Drains Drains
}

// Health is the memory of each checked server: true for down, false for up.
// Servers without an entry are new. Whoever gets one must not write to it.
type Health map[ipvs.DestinationKey]bool

// Fleet is a decision about every service, those of the configuration in file
// order and then those that only wait for their last server to drain. Whoever
// gets one must not write to it.
type Fleet struct {
	Services []Service
	// Health and Memory are for the next decision.
	Health Health
	Memory Memory
	// Next is when the decision changes by itself, as a slow start or a ramp goes
	// on; zero for never.
	Next time.Time
	// Alerts are what changed since the last decision.
	Alerts []Alert
}

// Size returns the number of real servers.
func (f *Fleet) Size() int {
	n := 0
	for i := range f.Services {
		n += len(f.Services[i].Servers)
	}
	return n
}

// Service is a decision about one virtual service.
type Service struct {
	// Name is the name in the configuration, or the last one there.
	Name string
	ipvs.Service
	// Leaving says that the service is not in the configuration any more.
	Leaving bool
	// Servers are in file order: the real servers, the backup servers, and then
	// those that drain.
	Servers []Server
	Quorum  QuorumState
	// Backup says that the backup servers replace the others, FailOpen that
	// health is ignored.
	Backup, FailOpen bool
}

// Server is a decision about one real server.
type Server struct {
	// Destination is complete; its Weight is the programmed weight.
	ipvs.Destination
	// Configured is the weight that the configuration says (or last said).
	Configured uint32
	// Backup says that the server is one of the backup servers.
	Backup bool
	// Chain is how the configured weight became the programmed one; empty for a
	// draining server.
	Chain []Step
	Gate  Gate
	// Present is false for a server that is not in the table: disabled, or failed
	// or standing by where on_failure removes.
	Present bool
	State   State
	// Health is what the checks and the agent say: Up, Down, Pending or
	// Unchecked. State is the same unless something else matters more.
	Health State
	// Ramping says that the weight is on its way.
	Ramping bool
	// Reason says in words why the programmed weight is what it is.
	Reason string
	// Probes are the checks.
	Probes []healthcheck.Probe
	// Warning is what the checks warn of, such as a certificate that expires; empty
	// for nothing. Unheard says that one of them has had no result yet.
	Warning string
	Unheard bool
	// OnFailure is what a failure does to the server, OnFailureReason why; empty
	// for a draining server.
	OnFailure       config.OnFailure
	OnFailureReason string
	// DrainTimeout bounds the drain that begins when the server leaves the
	// configuration; Deadline ends the drain of a Draining server.
	DrainTimeout time.Duration
	Deadline     time.Time
}

// Decide decides about every service and real server.
func Decide(in Input) *Fleet {
	d := decider{Input: in, fleet: &Fleet{
		Services: make([]Service, 0, len(in.Config.VirtualServices)),
		Memory: Memory{
			Services: make(map[ipvs.ServiceKey]ServiceMemory),
			Servers:  make(map[ipvs.DestinationKey]ServerMemory),
			// Few services have any.
			Ejections: make(map[ipvs.DestinationKey]Ejection),
		},
	}, health: successor{last: in.Health, changed: make(Health)}}
	f := d.fleet
	index := make(map[ipvs.ServiceKey]int, cap(f.Services))
	for i := range in.Config.VirtualServices {
		vs := &in.Config.VirtualServices[i]
		index[vs.ServiceKey] = len(f.Services)
		f.Services = append(f.Services, d.service(vs))
	}
	for _, drain := range in.Drains {
		k := drain.Key()
		i, ok := index[k.Service]
		if !ok {
			i = len(f.Services)
			index[k.Service] = i
			f.Services = append(f.Services, Service{Name: drain.Name, Service: drain.Service, Leaving: true})
		}
		f.Services[i].Servers = append(f.Services[i].Servers, drain.server())
		if _, ok := in.Health[k]; ok {
			d.health.known++ // it may come back
		}
		if m, ok := in.Memory.Servers[k]; ok {
			f.Memory.Servers[k] = m
		}
	}
	f.Health = d.health.next(f)
	return f
}

// decider makes one decision.
type decider struct {
	Input
	fleet  *Fleet
	health successor
	// servers are those of the service at hand, statuses those of the probes of
	// the server at hand. Both are kept for their memory.
	servers  []candidate
	statuses []healthcheck.Status
}

// candidate is a server of the configuration while it is decided about.
type candidate struct {
	rs     *config.RealServer
	key    ipvs.DestinationKey
	backup bool
	health
	weights
	gate Gate
	// warning and unheard are as in Server.
	warning string
	unheard bool
	// was is what is remembered of it.
	was ServerMemory
	// ejected says that it is taken out for its connections, passiveReason what they
	// are like if that matters. handshakes and ejection are what that follows from.
	ejected       bool
	passiveReason string
	handshakes    Handshakes
	ejection      Ejection
}

// service decides about a service of the configuration: first about each server
// by itself, then about the service, and at last about what that makes of each
// server.
func (d *decider) service(vs *config.VirtualService) Service {
	d.servers = d.servers[:0]
	for rs := range vs.Servers() {
		key := ipvs.DestinationKey{Service: vs.ServiceKey, Address: rs.Address}
		c := candidate{rs: rs, key: key, backup: len(d.servers) >= len(vs.RealServers), was: d.Memory.Servers[key]}
		var last verdict
		last.down, last.known = d.Health[key]
		c.health = d.judge(rs, last)
		c.warning, c.unheard = d.warning(rs)
		if len(rs.Probes) > 0 {
			d.health.note(key, last, c.down())
		}
		c.weights = d.weigh(rs, d.Admin[key])
		d.servers = append(d.servers, c)
	}
	p := d.policies(vs)
	for i := range d.servers {
		d.servers[i].gate = p.gate(&d.servers[i])
	}
	d.passive(vs, p)
	scale := d.scale(vs)
	s := Service{
		Name: vs.Name, Service: vs.Service, Servers: make([]Server, 0, len(d.servers)),
		Quorum: p.quorum, Backup: p.backup, FailOpen: p.failOpen,
	}
	steps := make([]Step, 0, 2*len(d.servers))
	for i := range d.servers {
		var server Server
		server, steps = d.server(vs, &d.servers[i], p, scale, steps)
		s.Servers = append(s.Servers, server)
	}
	return s
}

// server puts a decision together. Its chain is appended to steps.
func (d *decider) server(vs *config.VirtualService, c *candidate, p policies, scale uint32, steps []Step) (Server, []Step) {
	first := len(steps)
	ramp := d.slowStart(vs, c, scale)
	steps = append(steps, Step{Name: StepConfigured, Weight: c.rs.Weight})
	for _, s := range []Step{c.admin, c.dynamic, ramp, c.passiveStep(c.before(ramp))} {
		if s.Name != StepConfigured {
			steps = append(steps, s)
		}
	}
	weight := c.gate.apply(steps[len(steps)-1].Weight)
	gateReason := p.reason(c)
	if c.gate != GateOpen || gateReason != "" {
		steps = append(steps, Step{StepGate, weight, cmp.Or(gateReason, c.health.reason)})
	}
	steps = append(steps, Step{Name: StepProgrammed, Weight: weight})
	s := Server{
		Destination:  c.rs.Destination,
		Configured:   c.rs.Weight,
		Backup:       c.backup,
		Chain:        steps[first:len(steps):len(steps)],
		Gate:         c.gate,
		Present:      c.present(),
		State:        c.state(),
		Health:       c.health.state,
		Ramping:      c.ramping || ramp.Reason != "",
		Probes:       c.rs.Probes,
		Warning:      c.warning,
		Unheard:      c.unheard,
		DrainTimeout: c.rs.DrainTimeout,

		OnFailure:       c.rs.OnFailure,
		OnFailureReason: c.rs.OnFailureReason,
	}
	s.Weight = weight
	s.Reason = c.health.reason
	configured := ""
	if s.Configured == 0 {
		configured = "configured 0"
	}
	if words := join(configured, c.admin.Reason, c.dynamic.Reason, ramp.Reason, c.passiveReason, gateReason); words != "" {
		s.Reason = join(words, c.health.reason)
	}
	return s, steps
}

// present reports whether the table holds the server. What stands by is treated
// as what failed: it keeps its connections only where that does no harm to new
// ones.
func (c *candidate) present() bool {
	switch c.gate {
	case GateDisabled:
		return false
	case GateFailed, GateStandby:
		return c.rs.OnFailure != config.OnFailureRemove
	}
	return !c.ejected || c.rs.OnFailure != config.OnFailureRemove
}

// state is what matters most of a server.
func (c *candidate) state() State {
	switch {
	case c.gate == GateDisabled:
		return Disabled
	case c.down():
		return Down
	case c.gate == GateStandby:
		return Standby
	case c.drained:
		return Drained
	case c.ejected:
		return Ejected
	}
	return c.health.state
}

// join puts words together.
func join(words ...string) string {
	out := ""
	for _, w := range words {
		switch {
		case w == "":
		case out == "":
			out = w
		default:
			out += "; " + w
		}
	}
	return out
}

// Label names a probe for people: "http/1.1 10.0.0.2:80", "tcp 192.0.2.10:80 by
// 10.0.0.2" of one through the service. Its options are left to the configuration.
func Label(p healthcheck.Probe) string {
	kind, _, _ := strings.Cut(p.Method.Key(), " ")
	if p.Target.Port() == 0 {
		return kind + " " + p.Target.Addr().String()
	}
	return kind + " " + p.Through.Name(p.Target)
}

// Probes returns every probe of a configuration once.
func Probes(c *config.Config) []healthcheck.Probe {
	var probes []healthcheck.Probe
	seen := make(map[string]bool)
	for i := range c.VirtualServices {
		for rs := range c.VirtualServices[i].Servers() {
			for _, p := range rs.Probes {
				if key := p.Key(); !seen[key] {
					seen[key] = true
					probes = append(probes, p)
				}
			}
		}
	}
	return probes
}
