package fleet

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
)

// combination is one of all the situations that a server can be in.
type combination struct {
	check  string // none pending was-down up down starts-down
	agent  string // none silent up down
	word   string // none ready drain maint
	weight string // none 0% 50% 7
	admin  string // none drain disable 4 0 drain+4
	// configured is 0 or 3.
	configured uint32
	remove     bool
	backup     bool
	// policy is what befalls the service: nothing, held, replaced (the backup
	// servers are in), helpless (the quorum is lost, and no backup server helps) or
	// open (health is ignored).
	policy string
	// passive is what connections say: nothing, failing or out (since before).
	passive string
}

// each calls do with every combination.
func each(do func(combination)) {
	for _, check := range []string{"none", "pending", "was-down", "up", "down", "starts-down"} {
		for _, agent := range []string{"none", "silent", "up", "down"} {
			for _, word := range []string{"none", "ready", "drain", "maint"} {
				for _, weight := range []string{"none", "0%", "50%", "7"} {
					for _, admin := range []string{"none", "drain", "disable", "4", "0", "drain+4"} {
						for _, policy := range []string{"nothing", "held", "replaced", "helpless", "open"} {
							for _, passive := range []string{"nothing", "failing", "out"} {
								for bits := range uint32(8) {
									do(combination{check, agent, word, weight, admin, 3 * (bits & 1), bits&2 != 0, bits&4 != 0, policy, passive})
								}
							}
						}
					}
				}
			}
		}
	}
}

// possible reports whether the combination can be: who says nothing, says nothing. What
// connections say comes with one of the ways to be well or failed: they are alike
// without.
func (c combination) possible() bool {
	if (c.agent == "none" || c.agent == "silent") && (c.word != "none" || c.weight != "none") {
		return false
	}
	if c.passive != "nothing" && (!slices.Contains([]string{"none", "up", "down"}, c.check) || c.agent == "silent" || c.agent == "down") {
		return false
	}
	// A backup server that can help keeps the policy from being helpless.
	return !c.backup || c.policy != "helpless" && c.policy != "open" && c.policy != "nothing"
}

// outcome is what must come of a combination.
type outcome struct {
	Weight  uint32
	Present bool
	State   State
	Gate    Gate
}

// rule is the rule, in the words of the manual: the first sentence that applies
// decides.
func (c combination) rule() outcome {
	failed := map[string]bool{"down": true, "was-down": true, "starts-down": true}[c.check] || c.agent == "down"
	out := func(s State, g Gate) outcome { return outcome{0, !c.remove, s, g} }
	// Who is disabled, by an operator or by the agent, is not in the table.
	if c.admin == "disable" || c.word == "maint" {
		return outcome{0, false, Disabled, GateDisabled}
	}
	// Who failed, by a check or by the agent, gets nothing, unless health is
	// ignored, and is removed if on_failure says so. Neither the agent's up nor any
	// weight changes that.
	if failed && c.policy != "open" {
		return out(Down, GateFailed)
	}
	// Of the two tiers one stands by.
	if c.backup == (c.policy != "replaced") {
		return out(Standby, GateStandby)
	}
	// What is left has the weight of its chain.
	state := map[string]State{"none": Unchecked, "pending": Pending, "up": Up}[c.check]
	if c.admin == "drain" || c.admin == "drain+4" || c.word == "drain" {
		state = Drained
	}
	if failed {
		state = Down
	}
	// Who takes connections and fails at it is taken out, if another one is reached,
	// and not while health is ignored.
	if c.chain() > 0 && c.policy != "open" && (c.passive == "failing" || c.passive == "out") {
		return out(Ejected, GateOpen)
	}
	return outcome{c.chain(), true, state, GateOpen}
}

// chain is the weight of a server that nothing keeps out.
func (c combination) chain() uint32 {
	switch {
	case c.admin == "drain", c.admin == "drain+4", c.admin == "0", c.word == "drain", c.weight == "0%":
		return 0
	case c.admin == "4" && c.weight == "50%":
		return 2
	case c.admin == "4":
		return 4
	case c.configured == 0:
		return 0
	case c.weight == "7":
		return 7
	case c.weight == "50%":
		return 2 // of 3, rounded up
	}
	return 3
}

// build returns a sim whose server 10.9.0.1 is in the situation.
func (c combination) build(t *testing.T) *sim {
	const subject, agent = "10.9.0.1:80", "10.9.0.1:81"
	s := newSim(t, 1000)
	s.vs.Backup = servers("10.1.0", 1000)
	rs := server(subject, c.configured)
	if c.remove {
		rs.OnFailure = config.OnFailureRemove
	}
	if c.check != "none" {
		rs.Probes = append(rs.Probes, probe("check", subject))
		s.is[subject] = map[string]healthcheck.Status{
			"up": {State: healthcheck.Up, Checks: 1}, "down": failed, "starts-down": {State: healthcheck.Down},
		}[c.check]
		s.health = Health{dkey(vip, subject): c.check == "was-down"}
	}
	if c.agent != "none" {
		p := probe("agent", agent)
		p.Advisory = true
		rs.Probes = append(rs.Probes, p)
		st := healthcheck.Status{Checks: 1}
		if c.agent != "silent" {
			st.State = healthcheck.Up
			st.Advice = healthcheck.Advice{
				Health: map[string]healthcheck.Verdict{"up": healthcheck.SaysUp, "down": healthcheck.SaysDown}[c.agent],
				Admin: map[string]healthcheck.Verdict{
					"ready": healthcheck.SaysReady, "drain": healthcheck.SaysDrain, "maint": healthcheck.SaysMaint,
				}[c.word],
				Weight: map[string]healthcheck.Weight{
					"0%": percent(0).Weight, "50%": percent(50).Weight, "7": absolute(7).Weight,
				}[c.weight],
			}
		}
		s.is[agent] = st
	}
	weight := func(n uint32) *WeightOverride { return &WeightOverride{To: n} }
	s.admin[subject] = map[string]Override{
		"drain": {Mode: ModeDrain}, "disable": {Mode: ModeDisable},
		"4": {Weight: weight(4), Configured: c.configured}, "0": {Weight: weight(0), Configured: c.configured},
		"drain+4": {Mode: ModeDrain, Weight: weight(4), Configured: c.configured},
	}[c.admin]
	switch c.policy {
	case "nothing":
		s.vs.Backup = nil
	case "replaced":
		s.vs.Quorum.Up = 5000
	case "helpless":
		s.vs.Quorum.Up = 5000
		s.fail("10.1.0.1:80")
	case "open":
		s.vs.Backup, s.vs.FailOpenBelow = nil, 100
		s.fail("10.0.0.1:80")
	}
	s.handshakes = map[string]Handshakes{}
	for _, addr := range []string{"10.0.0.1:80", "10.1.0.1:80"} {
		s.handshakes[addr] = Handshakes{Good: 10, LateGood: 1}
	}
	if c.passive != "nothing" {
		s.vs.Passive = passive
		s.handshakes[subject] = failing
	}
	if c.passive == "out" {
		s.handshakes[subject] = Handshakes{}
		s.memory.Ejections = map[ipvs.DestinationKey]Ejection{
			dkey(vip, subject): {Until: s.begun.Add(time.Minute), Hold: time.Minute, Times: 1, Reason: "words"},
		}
	}
	if c.backup {
		s.vs.Backup = append([]config.RealServer{rs}, s.vs.Backup...)
	} else {
		s.vs.RealServers = append([]config.RealServer{rs}, s.vs.RealServers...)
	}
	return s
}

// Every combination of health, agent, operator, policy and configuration has the
// one outcome of the rule, and once decided it stays.
func TestEveryCombination(t *testing.T) {
	t.Parallel()
	n, bad := 0, 0
	each(func(c combination) {
		if !c.possible() || bad > 5 {
			return
		}
		n++
		s := c.build(t)
		until := time.Duration(-1)
		for _, which := range []string{"first", "second"} {
			var got outcome
			for _, rs := range s.decide(0).Services[0].Servers {
				if rs.Address.String() == "10.9.0.1:80" {
					got = outcome{rs.Weight, rs.Present, rs.State, rs.Gate}
					checkChain(t, &rs)
					if rs.State == Ejected {
						until = map[string]time.Duration{"failing": passive.Hold, "out": time.Minute}[c.passive]
					}
				}
			}
			if diff := cmp.Diff(c.rule(), got); diff != "" {
				bad++
				t.Errorf("%s decision about %+v (-want +got):\n%s", which, c, diff)
			}
		}
		if next := s.next(); next != until {
			t.Errorf("%+v: next decision at %v, want %v", c, next, until)
		}
	})
	if want := (6*(2+2*4*4) + 2*3*(1+4*4)) * 6 * (5 + 2) * 4; n != want && bad == 0 {
		t.Errorf("combinations: want %d, got %d", want, n)
	}
}
