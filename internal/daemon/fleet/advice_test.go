package fleet

import (
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
)

func absolute(n uint32) healthcheck.Advice {
	return healthcheck.Advice{Weight: healthcheck.Weight{Kind: healthcheck.WeightAbsolute, Value: n}}
}

func percent(n uint32) healthcheck.Advice {
	return healthcheck.Advice{Weight: healthcheck.Weight{Kind: healthcheck.WeightPercent, Value: n}}
}

func more(n uint32) healthcheck.Advice {
	return healthcheck.Advice{Weight: healthcheck.Weight{Kind: healthcheck.WeightMore, Value: n}}
}

func less(n uint32) healthcheck.Advice {
	return healthcheck.Advice{Weight: healthcheck.Weight{Kind: healthcheck.WeightLess, Value: n}}
}

// advised returns a sim of one server whose probes advise: the first is a check,
// the others are of agents.
func advised(t *testing.T, weight uint32, advice ...healthcheck.Advice) *sim {
	s := newSim(t, weight)
	rs := &s.vs.RealServers[0]
	rs.Probes = nil
	for i, a := range advice {
		target := []string{"10.0.0.1:80", "10.0.0.1:81", "10.0.0.1:82"}[i]
		p := probe([]string{"exec", "agent", "file"}[i], target)
		p.Advisory = i > 0
		rs.Probes = append(rs.Probes, p)
		s.is[target] = healthcheck.Status{State: healthcheck.Up, Checks: 1, Advice: a}
	}
	return s
}

func TestAdviceWeight(t *testing.T) {
	t.Parallel()
	none := healthcheck.Advice{}
	tests := []struct {
		name       string
		configured uint32
		advice     []healthcheck.Advice
		admin      Override
		want       string
	}{
		{"none", 10, []healthcheck.Advice{none}, Override{}, "10"},
		{"half", 10, []healthcheck.Advice{percent(50)}, Override{}, "5"},
		{"more than all", 10, []healthcheck.Advice{percent(250)}, Override{}, "25"},
		{"rounded up", 1, []healthcheck.Advice{percent(1)}, Override{}, "1"},
		{"nothing", 10, []healthcheck.Advice{percent(0)}, Override{}, "0"},
		{"clamped", 65535, []healthcheck.Advice{percent(65535)}, Override{}, "65535"},
		{"no overflow", 65535, []healthcheck.Advice{percent(65535), percent(65535), percent(65535)}, Override{}, "65535"},
		{"a nothing wins over much", 65535, []healthcheck.Advice{percent(65535), percent(65535), percent(0)}, Override{}, "0"},
		{"absolute", 10, []healthcheck.Advice{absolute(3)}, Override{}, "3"},
		{"absolute above", 10, []healthcheck.Advice{absolute(65535)}, Override{}, "65535"},
		{"absolute 0", 10, []healthcheck.Advice{absolute(0)}, Override{}, "0"},
		{"the least", 10, []healthcheck.Advice{absolute(7), absolute(3), absolute(5)}, Override{}, "3"},
		{"the least is the first", 10, []healthcheck.Advice{absolute(0), absolute(3), absolute(5)}, Override{}, "0"},
		{"absolute, then percent", 10, []healthcheck.Advice{percent(50), absolute(30), none}, Override{}, "15"},
		{"two percentages", 100, []healthcheck.Advice{percent(50), percent(50)}, Override{}, "25"},
		{"more", 10, []healthcheck.Advice{more(5)}, Override{}, "15"},
		{"less", 10, []healthcheck.Advice{less(4)}, Override{}, "6"},
		{"less than nothing", 10, []healthcheck.Advice{less(11)}, Override{}, "0"},
		{"less and more", 10, []healthcheck.Advice{less(11), more(3)}, Override{}, "2"},
		{"more than can be", 65535, []healthcheck.Advice{more(65535), more(1)}, Override{}, "65535"},
		{"absolute, then more, then percent", 10, []healthcheck.Advice{percent(50), more(10), absolute(30)}, Override{}, "20"},
		{"absolute 0 stays", 10, []healthcheck.Advice{absolute(0), more(5)}, Override{}, "0"},
		{"configured 0 stays with more", 0, []healthcheck.Advice{more(7)}, Override{}, "0"},
		{"an operator's weight gets more", 10, []healthcheck.Advice{more(7)}, Override{Weight: &WeightOverride{To: 4}, Configured: 10}, "11"},
		{"configured 0 stays", 0, []healthcheck.Advice{absolute(7), percent(100)}, Override{}, "0"},
		{"an operator's weight beats absolute", 10, []healthcheck.Advice{absolute(7)}, Override{Weight: &WeightOverride{To: 4}, Configured: 10}, "4"},
		{"and not percent", 10, []healthcheck.Advice{percent(50)}, Override{Weight: &WeightOverride{To: 4}, Configured: 10}, "2"},
		{"an obsolete one does not", 10, []healthcheck.Advice{absolute(7)}, Override{Weight: &WeightOverride{To: 4}, Configured: 9}, "7"},
		{"drained stays", 10, []healthcheck.Advice{absolute(7), percent(100)}, Override{Mode: ModeDrain}, "0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := advised(t, tt.configured, tt.advice...)
			s.admin["10.0.0.1:80"] = tt.admin
			s.want(0, tt.want)
			checkChain(t, &s.fleet.Services[0].Servers[0])
		})
	}
}

func TestAdviceChain(t *testing.T) {
	t.Parallel()
	agent := percent(50)
	agent.Admin, agent.Reason = healthcheck.SaysReady, "backup runs"
	s := advised(t, 10, absolute(20), agent)
	s.vs.SlowStart = time.Minute
	rs := &s.decide(0).Services[0].Servers[0]
	want := "configured 10, dynamic 10 (exec 10.0.0.1:80 says weight 20; agent 10.0.0.1:81 says 50% (backup runs)), slow start 1000, programmed 1000"
	if got := chain(rs); got != want {
		t.Errorf("chain: want\n%s\ngot\n%s", want, got)
	}
	s.is["10.0.0.1:81"] = healthcheck.Status{State: healthcheck.Up, Checks: 1, Advice: healthcheck.Advice{Health: healthcheck.SaysDown, Reason: "disk full"}}
	rs = &s.decide(0).Services[0].Servers[0]
	if want := "exec 10.0.0.1:80 says weight 20; failed: agent 10.0.0.1:81 says down (disk full)"; rs.Reason != want || rs.State != Down {
		t.Errorf("reason: want %s, %q, got %s, %q", Down, want, rs.State, rs.Reason)
	}
	s.admin["10.0.0.1:80"] = Override{Weight: &WeightOverride{To: 4}, Configured: 10, By: "root"}
	s.is["10.0.0.1:81"] = healthcheck.Status{State: healthcheck.Up, Checks: 2}
	rs = &s.decide(0).Services[0].Servers[0]
	if want := "weight 4 by root; exec 10.0.0.1:80 says weight 20, which the operator's weight beats; healthy"; rs.Reason != want {
		t.Errorf("reason: want %q, got %q", want, rs.Reason)
	}
}

// A percentage that goes up and down with the load must not change the scale of
// all servers: that is a write for each.
func TestAdviceKeepsScale(t *testing.T) {
	t.Parallel()
	s := newSim(t, 1000, 10)
	s.vs.SlowStart = time.Minute
	s.want(0, "65000 650")
	for _, p := range []uint32{1, 50, 100} {
		s.is["10.0.0.1:80"] = healthcheck.Status{State: healthcheck.Up, Advice: percent(p)}
		s.decide(0)
		if got := s.fleet.Services[0].Servers[1].Weight; got != 650 {
			t.Errorf("weight of the other at %d %%: want 650, got %d", p, got)
		}
	}
}

// After a restart that lost its words, an agent that had taken the server down is
// waited for, but not one that does not answer.
func TestAgentAfterRestart(t *testing.T) {
	t.Parallel()
	s := advised(t, 10, healthcheck.Advice{}, healthcheck.Advice{Health: healthcheck.SaysDown})
	s.want(0, "0")
	s.is["10.0.0.1:81"] = healthcheck.Status{} // a new process: no result yet
	s.want(0, "0")
	if want, got := "failed before; no word of agent 10.0.0.1:81 yet", s.fleet.Services[0].Servers[0].Reason; got != want {
		t.Errorf("reason: want %q, got %q", want, got)
	}
	s.is["10.0.0.1:81"] = healthcheck.Status{Checks: 1, Failures: 1, LastErr: failed.LastErr}
	s.want(0, "10")
	// Without a failure before nobody waits for an agent.
	s.is["10.0.0.1:81"] = healthcheck.Status{}
	s.want(0, "10")
}

// An agent that cannot be reached says nothing of the server.
func TestAgentUnreachable(t *testing.T) {
	t.Parallel()
	s := advised(t, 10, healthcheck.Advice{}, healthcheck.Advice{})
	s.is["10.0.0.1:81"] = healthcheck.Status{State: healthcheck.Down, Checks: 9, Failures: 9, LastErr: failed.LastErr}
	s.want(0, "10")
	s.vs.RealServers[0].Probes = s.vs.RealServers[0].Probes[1:] // only the agent
	s.want(0, "10")
	if st := s.fleet.Services[0].Servers[0].State; st != Unchecked {
		t.Errorf("state without a check: want %s, got %s", Unchecked, st)
	}
}

func TestRule(t *testing.T) {
	t.Parallel()
	any01 := &healthcheck.Rule{Kind: healthcheck.RuleAny, Of: []healthcheck.Rule{{Probe: 0}, {Probe: 1}}}
	for _, tt := range []struct {
		name   string
		rule   *healthcheck.Rule
		states [2]healthcheck.State
		was    bool
		want   State
	}{
		{"all", nil, [2]healthcheck.State{healthcheck.Up, healthcheck.Down}, false, Down},
		{"any, one up", any01, [2]healthcheck.State{healthcheck.Down, healthcheck.Up}, true, Up},
		{"any, none up", any01, [2]healthcheck.State{healthcheck.Down, healthcheck.Down}, false, Down},
		{"any, one pending", any01, [2]healthcheck.State{healthcheck.Down, healthcheck.Pending}, false, Pending},
		{"any, one pending, was down", any01, [2]healthcheck.State{healthcheck.Down, healthcheck.Pending}, true, Down},
		{"all, one pending, was down", nil, [2]healthcheck.State{healthcheck.Up, healthcheck.Pending}, true, Down},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, 1)
			rs := &s.vs.RealServers[0]
			rs.Rule = tt.rule
			rs.Probes = append(rs.Probes, probe("other", "10.0.0.1:81"))
			for i, st := range tt.states {
				s.is[rs.Probes[i].Target.String()] = healthcheck.Status{State: st, LastErr: failed.LastErr, Checks: 1, Failures: 1}
			}
			s.health = Health{dkey(vip, "10.0.0.1:80"): tt.was}
			if got := s.decide(0).Services[0].Servers[0].State; got != tt.want {
				t.Errorf("state: want %s, got %s", tt.want, got)
			}
		})
	}
}
