package fleet

import (
	"fmt"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
)

// State is the state of a real server, in the words of the control API.
type State string

// The states. A server that is down because it was down before a restart, and
// has no result since, is Down; every other server without a result is Pending
// and counts as up.
const (
	Up        State = "up"
	Down      State = "down"
	Pending   State = "pending"
	Draining  State = "draining"
	Unchecked State = "unchecked"
)

// Gate is the last word of the weight chain.
type Gate uint8

// The gates. "configured 0" is GateOpen with a configured weight of 0; the three
// reasons for a programmed weight of 0 never share a value.
const (
	// GateOpen lets the weight through.
	GateOpen Gate = iota
	// GateFailed is 0: a check failed.
	GateFailed
	// GateDrained is 0: the server left the configuration.
	GateDrained
)

// Input is everything that a decision depends on.
type Input struct {
	Config *config.Config
	// Probe returns the status of a probe of Config; the zero Status, which is
	// Pending, if nothing is known of it. It gets the pointer into Config, so
	// that the caller need not make the key of each probe each time.
	Probe func(p *healthcheck.Probe) healthcheck.Status
	// Health is what the last decision said of each checked server.
	Health Health
	// Drains are the servers that left the configuration and still have
	// connections.
	Drains Drains
}

// Health is the memory of each checked server: true for down, false for up.
// Servers without an entry are new.
type Health map[ipvs.DestinationKey]bool

// Fleet is a decision about every service, those of the configuration in file
// order and then those that only wait for their last server to drain. Whoever
// gets one must not write to it.
type Fleet struct {
	Services []Service
	// Health is the memory for the next decision.
	Health Health
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
	// Servers are in file order, draining ones after the others.
	Servers []Server
}

// Server is a decision about one real server.
type Server struct {
	// Destination is complete; its Weight is the programmed weight.
	ipvs.Destination
	// Configured is the weight that the configuration says (or last said).
	Configured uint32
	Gate       Gate
	// Present is false for a failed server that on_failure removes.
	Present bool
	State   State
	// Reason says in words why the programmed weight is what it is.
	Reason string
	// Probes are the checks, all of which must pass.
	Probes []healthcheck.Probe
	// DrainTimeout bounds the drain that begins when the server leaves the
	// configuration; Deadline ends the drain of a Draining server.
	DrainTimeout time.Duration
	Deadline     time.Time
}

// Decide decides about every service and real server.
func Decide(in Input) *Fleet {
	f := &Fleet{
		Services: make([]Service, 0, len(in.Config.VirtualServices)),
		Health:   make(Health, len(in.Health)),
	}
	index := make(map[ipvs.ServiceKey]int, cap(f.Services))
	for i := range in.Config.VirtualServices {
		vs := &in.Config.VirtualServices[i]
		s := Service{Name: vs.Name, Service: vs.Service, Servers: make([]Server, 0, len(vs.RealServers))}
		for j := range vs.RealServers {
			rs := &vs.RealServers[j]
			s.Servers = append(s.Servers, in.server(f, vs.ServiceKey, rs))
		}
		index[vs.ServiceKey] = len(f.Services)
		f.Services = append(f.Services, s)
	}
	for _, d := range in.Drains {
		i, ok := index[d.Service.ServiceKey]
		if !ok {
			i = len(f.Services)
			index[d.Service.ServiceKey] = i
			f.Services = append(f.Services, Service{Name: d.Name, Service: d.Service, Leaving: true})
		}
		f.Services[i].Servers = append(f.Services[i].Servers, d.server())
		if down, ok := in.Health[d.Key()]; ok {
			f.Health[d.Key()] = down // it may come back
		}
	}
	return f
}

// server decides about a server of the configuration and notes its health for
// the next decision.
func (in Input) server(f *Fleet, service ipvs.ServiceKey, rs *config.RealServer) Server {
	s := Server{
		Destination:  rs.Destination,
		Configured:   rs.Weight,
		Present:      true,
		Probes:       rs.Probes,
		DrainTimeout: rs.DrainTimeout,
	}
	if len(rs.Probes) == 0 {
		s.State, s.Reason = Unchecked, "no check"
	} else {
		key := ipvs.DestinationKey{Service: service, Address: rs.Address}
		wasDown := in.Health[key]
		s.State, s.Reason = in.judge(rs.Probes, wasDown)
		f.Health[key] = s.State == Down
	}
	if s.State == Down {
		s.Gate = GateFailed
		s.Present = rs.OnFailure != config.OnFailureRemove
	}
	// The seam of the weight chain: an admin override, a dynamic factor and a
	// slow start go here, between the configured weight and the gate.
	s.Weight = s.Gate.apply(s.Configured)
	if s.Configured == 0 {
		s.Reason = "configured 0; " + s.Reason
	}
	return s
}

// judge turns the states of all probes of a server into its own. A pending
// probe counts as what the server was before.
func (in Input) judge(probes []healthcheck.Probe, wasDown bool) (State, string) {
	pending := false
	for i := range probes {
		p := &probes[i]
		st := in.Probe(p)
		switch st.State {
		case healthcheck.Down:
			if st.LastErr == nil {
				return Down, fmt.Sprintf("failed: %s: recovering, passed %d of %d", Label(*p), st.Streak, p.Rise)
			}
			return Down, fmt.Sprintf("failed: %s: %v", Label(*p), st.LastErr)
		case healthcheck.Pending:
			pending = true
		}
	}
	switch {
	case pending && wasDown:
		return Down, "failed before; no result of a check yet"
	case pending:
		return Pending, "no result of a check yet, counts as up"
	}
	return Up, "healthy"
}

// Label names a probe for people: "tcp 10.0.0.2:80".
func Label(p healthcheck.Probe) string {
	return p.Method.Key() + " " + p.Target.String()
}

func (g Gate) apply(weight uint32) uint32 {
	if g != GateOpen {
		return 0
	}
	return weight
}

// Probes returns every probe of a configuration once.
func Probes(c *config.Config) []healthcheck.Probe {
	var probes []healthcheck.Probe
	seen := make(map[string]bool)
	for i := range c.VirtualServices {
		for j := range c.VirtualServices[i].RealServers {
			for _, p := range c.VirtualServices[i].RealServers[j].Probes {
				if key := p.Key(); !seen[key] {
					seen[key] = true
					probes = append(probes, p)
				}
			}
		}
	}
	return probes
}
