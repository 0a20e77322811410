package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
)

// sim decides again and again about one service, each time from what the decision
// before left.
type sim struct {
	t  *testing.T
	vs config.VirtualService
	// is is what the one check of each server says, by address; Up where there is
	// nothing.
	is    map[string]healthcheck.Status
	admin map[string]Override
	// handshakes are how connections began, by address; of a server that came back
	// within the window none are new, unless always is set.
	handshakes map[string]Handshakes
	always     bool
	begun      time.Time

	health Health
	memory Memory
	fleet  *Fleet
}

var failed = healthcheck.Status{State: healthcheck.Down, LastErr: fmt.Errorf("refused"), Failures: 3}

// newSim returns one with checked servers of 10.0.0.1, 10.0.0.2 … with weights.
func newSim(t *testing.T, weights ...uint32) *sim {
	s := &sim{
		t: t, vs: service(vip), begun: time.Unix(1_000_000, 0),
		is: make(map[string]healthcheck.Status), admin: make(map[string]Override),
	}
	s.vs.RealServers = servers("10.0.0", weights...)
	return s
}

func servers(network string, weights ...uint32) []config.RealServer {
	var list []config.RealServer
	for i, w := range weights {
		addr := fmt.Sprintf("%s.%d:80", network, i+1)
		list = append(list, server(addr, w, probe(addr, addr)))
	}
	return list
}

// decide decides at a time after the beginning.
func (s *sim) decide(after time.Duration) *Fleet {
	s.t.Helper()
	admin := make(Overrides)
	for addr, o := range s.admin {
		admin[dkey(vip, addr)] = o
	}
	now := s.begun.Add(after)
	s.fleet = Decide(Input{
		Config: &config.Config{VirtualServices: []config.VirtualService{s.vs}},
		Now:    now,
		Probe: func(p *healthcheck.Probe) healthcheck.Status {
			if st, ok := s.is[p.Target.String()]; ok {
				return st
			}
			return healthcheck.Status{State: healthcheck.Up}
		},
		Health: s.health, Memory: s.memory, Admin: admin,
		Handshakes: func(k ipvs.DestinationKey, since time.Time) Handshakes {
			if !s.always && now.Sub(since) < s.vs.Passive.Window {
				return Handshakes{}
			}
			return s.handshakes[k.Address.String()]
		},
	})
	s.health, s.memory = s.fleet.Health, s.fleet.Memory
	if next := s.fleet.Next; !next.IsZero() && !next.After(now) {
		s.t.Errorf("next decision after %v is due at %v: it would never end", after, next.Sub(s.begun))
	}
	return s.fleet
}

// next returns when the last decision changes by itself, after the beginning; -1
// for never.
func (s *sim) next() time.Duration {
	if s.fleet.Next.IsZero() {
		return -1
	}
	return s.fleet.Next.Sub(s.begun)
}

// weights decides and prints the programmed weights, "-" for a server that is not
// in the table.
func (s *sim) weights(after time.Duration) string {
	s.t.Helper()
	var out []string
	for _, rs := range s.decide(after).Services[0].Servers {
		if !rs.Present {
			out = append(out, "-")
			continue
		}
		out = append(out, fmt.Sprint(rs.Weight))
	}
	return strings.Join(out, " ")
}

func (s *sim) want(after time.Duration, want string) {
	s.t.Helper()
	if got := s.weights(after); got != want {
		s.t.Errorf("weights after %v: want %s, got %s", after, want, got)
	}
}

// alerts prints the alerts of the last decision.
func (s *sim) alerts() string {
	var out []string
	for _, a := range s.fleet.Alerts {
		if a.Service != vip || a.Key != key(vip) {
			s.t.Errorf("alert of another service: %+v", a)
		}
		word := a.Kind.String()
		if a.First {
			word = "first " + word
		}
		out = append(out, word)
	}
	return strings.Join(out, ", ")
}

// chain prints the weight chain of a server.
func chain(rs *Server) string {
	var out []string
	for _, s := range rs.Chain {
		text := fmt.Sprintf("%v %d", s.Name, s.Weight)
		if s.Reason != "" {
			text += " (" + s.Reason + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// The steps of a chain are in order, begin with the configured weight, end with
// the programmed one, and the last one that says something is what is programmed.
func checkChain(t *testing.T, rs *Server) {
	t.Helper()
	c := rs.Chain
	ok := len(c) >= 2 && c[0] == Step{Name: StepConfigured, Weight: rs.Configured} &&
		c[len(c)-1] == Step{Name: StepProgrammed, Weight: rs.Weight} && c[len(c)-2].Weight == rs.Weight
	for i := 1; i < len(c); i++ {
		ok = ok && c[i-1].Name < c[i].Name
	}
	if !ok {
		t.Errorf("%v: bad chain %s for weight %d", rs.Address, chain(rs), rs.Weight)
	}
}
