package daemon

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/ipvs"
)

// ledger is what must outlive the process but not the boot: what lbd did to the
// host and what it knew of the servers. It belongs to the owner. Its maps are
// replaced and never written to, but for sysctls and vips.
type ledger struct {
	// netns is the namespace of everything below.
	netns string
	// engine holds the services; empty for the kernel.
	engine config.Engine
	// marks are those of its rules; zero for the kernel.
	marks memory.Marks
	// owned are the services that lbd has called its own.
	owned map[ipvs.ServiceKey]struct{}
	// health is the last decision about each checked server.
	health fleet.Health
	// advice is what the last decision heard of checks beside that, by the name of
	// the check's subject.
	advice map[string]healthcheck.Advice
	// fleet is the rest of what the last decision left for the next.
	fleet  fleet.Memory
	drains fleet.Drains
	// order is the list order of the real servers, the newest first, of services
	// where it is not that of the file.
	order map[ipvs.ServiceKey][]netip.AddrPort
	// sysctls are the values that net.ipv4.vs.* had before lbd changed them.
	sysctls map[string]int
	// timeouts are those of the engine before lbd changed them; zero where it did
	// not.
	timeouts ipvs.Timeouts
	// vips are the addresses that lbd added.
	vips map[VIP]struct{}
	// paths says that there are rules of checks through services.
	paths bool
}

// clone returns a copy that shares nothing that is written to.
func (l *ledger) clone() *ledger {
	c := *l
	c.drains, c.sysctls, c.vips = slices.Clone(l.drains), cloneMap(l.sysctls), cloneMap(l.vips)
	return &c
}

// equal reports whether both say the same.
func (l *ledger) equal(o *ledger) bool {
	return l.netns == o.netns && l.engine == o.engine && l.marks == o.marks &&
		same(l.owned, o.owned) &&
		same(l.health, o.health) &&
		same(l.advice, o.advice) &&
		l.fleet.Equal(o.fleet) &&
		slices.Equal(l.drains, o.drains) &&
		maps.EqualFunc(l.order, o.order, slices.Equal) &&
		maps.Equal(l.sysctls, o.sysctls) &&
		l.timeouts == o.timeouts &&
		maps.Equal(l.vips, o.vips) && l.paths == o.paths
}

// forgetServers forgets what was known of the real servers and services, once none
// is left: the next start is a first one.
func (l *ledger) forgetServers() {
	l.health, l.advice, l.fleet, l.drains, l.order = nil, nil, fleet.Memory{}, nil, nil
}

// empty reports whether lbd has nothing on the host.
func (l *ledger) empty() bool {
	return l.bound() == "" && len(l.vips) == 0 && !l.paths
}

// bound returns the engine that still has something of lbd; empty for none. The
// userspace engine has rules even without a service. The addresses belong to no
// engine.
func (l *ledger) bound() config.Engine {
	switch {
	case l.engine == config.EngineUserspace:
		return l.engine
	case len(l.owned)+len(l.sysctls) == 0 && l.timeouts == ipvs.Timeouts{}:
		return ""
	}
	return config.EngineKernel
}

// bind makes the ledger one of an engine. What another one had is gone: choose
// has seen to it.
func (l *ledger) bind(e config.Engine, u config.Userspace) {
	if b := l.bound(); b != "" && b != e {
		l.owned, l.sysctls, l.timeouts = map[ipvs.ServiceKey]struct{}{}, map[string]int{}, ipvs.Timeouts{}
	}
	l.engine, l.marks = e, memory.Marks{}
	if e == config.EngineUserspace {
		l.marks = marksOf(u)
	}
}

// memory returns the ledger as it is stored at now. states says since when each
// server has been in its state.
func (l *ledger) memory(now time.Time, states map[ipvs.DestinationKey]since) memory.Memory {
	m := memory.Memory{
		NetNS:    l.netns,
		Engine:   string(l.engine),
		Marks:    l.marks,
		Owned:    l.owned,
		Health:   l.health,
		Advice:   l.advice,
		DownFor:  make(map[ipvs.DestinationKey]time.Duration),
		Policies: make(map[ipvs.ServiceKey]memory.Policy, len(l.fleet.Services)),
		Returns:  make(map[ipvs.DestinationKey]memory.Return, len(l.fleet.Servers)),
		Order:    l.order,
		Sysctls:  cloneMap(l.sysctls),
		Timeouts: l.timeouts,
		VIPs:     make(map[memory.VIP]struct{}, len(l.vips)),
		Paths:    l.paths,
	}
	for k, down := range l.health {
		if !down {
			continue
		}
		if s := states[k]; s.state == fleet.Down {
			m.DownFor[k] = now.Sub(s.at)
		}
	}
	for k, s := range l.fleet.Services {
		m.Policies[k] = memory.Policy{Quorum: quorumWords[s.Quorum], Backup: s.Backup, FailOpen: s.FailOpen}
	}
	for k, s := range l.fleet.Servers {
		r := memory.Return{Out: s.Out}
		if !s.Up.IsZero() {
			r.Back, r.For = true, max(0, now.Sub(s.Up))
		}
		m.Returns[k] = r
	}
	for _, d := range l.drains {
		m.Drains = append(m.Drains, memory.Drain{
			Name: d.Name, Service: d.Service, Destination: d.Destination,
			Remaining: max(0, d.Deadline.Sub(now)),
		})
	}
	for v := range l.vips {
		m.VIPs[memory.VIP{Interface: v.Interface, Prefix: netip.PrefixFrom(v.Address, v.Address.BitLen())}] = struct{}{}
	}
	return m
}

// recall returns what was stored as it is at now, with since when the servers
// that were down have been so.
func recall(m memory.Memory, now time.Time) (*ledger, map[ipvs.DestinationKey]since) {
	l := &ledger{
		netns:  m.NetNS,
		engine: config.Engine(m.Engine),
		marks:  m.Marks,
		owned:  cloneMap(m.Owned),
		health: cloneMap(m.Health),
		advice: cloneMap(m.Advice),
		fleet: fleet.Memory{
			Services: make(map[ipvs.ServiceKey]fleet.ServiceMemory, len(m.Policies)),
			Servers:  make(map[ipvs.DestinationKey]fleet.ServerMemory, len(m.Returns)),
		},
		order:    cloneMap(m.Order),
		sysctls:  cloneMap(m.Sysctls),
		timeouts: m.Timeouts,
		vips:     make(map[VIP]struct{}, len(m.VIPs)),
		paths:    m.Paths,
	}
	for k, p := range m.Policies {
		s := fleet.ServiceMemory{Backup: p.Backup, FailOpen: p.FailOpen}
		for state, word := range quorumWords {
			if word == p.Quorum {
				s.Quorum = state
			}
		}
		l.fleet.Services[k] = s
	}
	for k, r := range m.Returns {
		s := fleet.ServerMemory{Out: r.Out}
		if r.Back {
			s.Up = now.Add(-r.For)
		}
		l.fleet.Servers[k] = s
	}
	states := make(map[ipvs.DestinationKey]since)
	for k, down := range m.Health {
		if down {
			states[k] = since{fleet.Down, now.Add(-m.DownFor[k])}
		}
	}
	for _, d := range m.Drains {
		l.drains = append(l.drains, fleet.Drain{
			Name: d.Name, Service: d.Service, Destination: d.Destination,
			Deadline: now.Add(d.Remaining),
		})
	}
	for v := range m.VIPs {
		l.vips[VIP{v.Interface, v.Prefix.Addr()}] = struct{}{}
	}
	return l, states
}

// quorumWords are the words of a memory.Policy.
var quorumWords = map[fleet.QuorumState]string{
	fleet.QuorumNone: "", fleet.QuorumHeld: memory.QuorumHeld, fleet.QuorumLost: memory.QuorumLost,
}

// same reports whether two maps hold the same. They mostly are one, which tells
// without a look at what they hold.
func same[M ~map[K]V, K, V comparable](a, b M) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer() || maps.Equal(a, b)
}

// cloneMap copies a map; unlike maps.Clone it never returns nil.
func cloneMap[M ~map[K]V, K comparable, V any](m M) M {
	c := make(M, len(m))
	maps.Copy(c, m)
	return c
}
