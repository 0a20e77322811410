package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
)

// A quorum is gained at up + hysteresis and lost at 0 or below up - hysteresis;
// the first decision goes by up alone.
func TestQuorumHysteresis(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		up, hysteresis uint32
		// sums are the weights that are well, one decision each, want what comes
		// of them: "+" held, "-" lost.
		sums []uint32
		want string
	}{
		{"no hysteresis", 3, 0, []uint32{3, 2, 3, 4, 2, 0, 3}, "+-++--+"},
		{"up 0 is 1", 0, 0, []uint32{1, 0, 1}, "+-+"},
		{"first at up", 5, 2, []uint32{5}, "+"},
		{"first below up", 5, 2, []uint32{4}, "-"},
		{"lost below up - hysteresis", 5, 2, []uint32{5, 4, 3, 2}, "+++-"},
		{"gained at up + hysteresis", 5, 2, []uint32{2, 5, 6, 7, 3}, "---++"},
		{"hysteresis of up: lost at 0 alone", 3, 3, []uint32{3, 2, 1, 0, 3, 5, 6, 1}, "+++---++"},
		{"hysteresis above up: lost at 0 alone", 2, 4, []uint32{2, 1, 0, 5, 6}, "++--+"},
		{"a single server", 1, 0, []uint32{1, 0, 0, 1}, "+--+"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, 1, 1, 1, 1, 1, 1, 1)
			s.vs.Quorum = config.Quorum{Up: tt.up, Hysteresis: tt.hysteresis, OnUp: []string{"/bin/true"}}
			got := ""
			for _, sum := range tt.sums {
				for i, rs := range s.vs.RealServers {
					s.is[rs.Address.String()] = failed
					if uint32(i) < sum {
						s.is[rs.Address.String()] = healthcheck.Status{State: healthcheck.Up}
					}
				}
				switch s.decide(0).Services[0].Quorum {
				case QuorumHeld:
					got += "+"
				case QuorumLost:
					got += "-"
				default:
					got += "?"
				}
			}
			if got != tt.want {
				t.Errorf("quorum: want %s, got %s", tt.want, got)
			}
		})
	}
}

// The quorum counts the weight that operators leave, of servers that are well and
// not drained.
func TestQuorumCounts(t *testing.T) {
	t.Parallel()
	base := func() *sim {
		s := newSim(t, 3, 2, 0)
		s.vs.Quorum.Up = 3
		return s
	}
	for _, tt := range []struct {
		name string
		do   func(*sim)
		want QuorumState
	}{
		{"all well", func(*sim) {}, QuorumHeld},
		{"the heavy one failed", func(s *sim) { s.fail(rs1Addr) }, QuorumLost},
		{"the light one failed", func(s *sim) { s.fail(rs2Addr) }, QuorumHeld},
		{"drained", func(s *sim) { s.admin[rs1Addr] = Override{Mode: ModeDrain} }, QuorumLost},
		{"drained by its agent", func(s *sim) {
			s.is[rs1Addr] = healthcheck.Status{State: healthcheck.Up, Advice: healthcheck.Advice{Admin: healthcheck.SaysDrain}}
		}, QuorumLost},
		{"half of the weight by its agent", func(s *sim) {
			s.is[rs1Addr] = healthcheck.Status{State: healthcheck.Up, Advice: percent(1)}
		}, QuorumHeld},
		{"disabled", func(s *sim) { s.admin[rs1Addr] = Override{Mode: ModeDisable} }, QuorumLost},
		{"an operator's weight", func(s *sim) { s.admin[rs1Addr] = Override{Weight: &WeightOverride{To: 0}, Configured: 3} }, QuorumLost},
		{"an operator's greater weight", func(s *sim) {
			s.fail(rs1Addr)
			s.admin[rs2Addr] = Override{Weight: &WeightOverride{To: 3}, Configured: 2}
		}, QuorumHeld},
		{"a server that left", func(s *sim) { s.vs.RealServers = s.vs.RealServers[1:] }, QuorumLost},
		{"weights edited", func(s *sim) { s.vs.RealServers[0].Weight = 0 }, QuorumLost},
		{"no servers", func(s *sim) { s.vs.RealServers = nil }, QuorumLost},
		{"slow start scales nothing", func(s *sim) { s.vs.SlowStart = time.Minute; s.fail(rs1Addr) }, QuorumLost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := base()
			s.decide(0)
			tt.do(s)
			if got := s.decide(time.Second).Services[0].Quorum; got != tt.want {
				t.Errorf("quorum: want %v, got %v", tt.want, got)
			}
		})
	}
}

// After a start nothing is said of the quorum before the checks have decided, and
// the backup servers wait for that.
func TestQuorumStart(t *testing.T) {
	t.Parallel()
	start := func() *sim {
		s := newSim(t, 1, 1)
		s.vs.Quorum.Up = 2
		s.vs.Backup = servers("10.1.0", 5)
		s.is[rs1Addr], s.is[rs2Addr] = healthcheck.Status{}, healthcheck.Status{}
		s.want(0, "1 1 0")
		if got := s.alerts(); got != "" || s.fleet.Services[0].Quorum != QuorumNone {
			t.Errorf("while all are pending: want no alert and no quorum, got %q, %v", got, s.fleet.Services[0].Quorum)
		}
		return s
	}
	s := start()
	s.heal(rs1Addr)
	s.want(1*time.Second, "1 1 0")
	if got := s.alerts(); got != "" {
		t.Errorf("while one is pending: want no alert, got %q", got)
	}
	s.heal(rs2Addr)
	s.want(2*time.Second, "1 1 0")
	if got := s.alerts(); got != "first quorum held" {
		t.Errorf("both up: got alerts %q", got)
	}
	s.decide(3 * time.Second)
	if got := s.alerts(); got != "" {
		t.Errorf("again: want no alert, got %q", got)
	}
	s = start()
	s.fail(rs1Addr) // whatever the other one says
	s.want(1*time.Second, "0 0 5")
	if got := s.alerts(); got != "first quorum lost, first backup servers in" {
		t.Errorf("one failed: got alerts %q", got)
	}
}

func TestBackup(t *testing.T) {
	t.Parallel()
	s := newSim(t, 3, 2)
	s.vs.Backup = servers("10.1.0", 7, 8)
	const backup1, backup2 = "10.1.0.1:80", "10.1.0.2:80"
	states := func() string {
		var out []string
		for _, rs := range s.fleet.Services[0].Servers {
			out = append(out, string(rs.State))
			checkChain(t, &rs)
		}
		return strings.Join(out, " ")
	}
	step := func(name string, weights, want, alerts string) {
		t.Helper()
		s.want(0, weights)
		if got := states(); got != want {
			t.Errorf("%s: states: want %s, got %s", name, want, got)
		}
		if got := s.alerts(); got != alerts {
			t.Errorf("%s: alerts: want %q, got %q", name, alerts, got)
		}
	}
	step("all well", "3 2 0 0", "up up standby standby", "first quorum held")
	s.fail(rs1Addr)
	step("quorum of 1", "0 2 0 0", "down up standby standby", "")
	s.fail(rs2Addr)
	step("all failed", "0 0 7 8", "down down up up", "quorum lost, backup servers in")
	s.fail(backup1)
	step("a backup server failed", "0 0 0 8", "down down down up", "")
	s.fail(backup2)
	step("nobody is left", "0 0 0 0", "down down down down", "backup servers out")
	s.heal(backup2)
	step("one is again", "0 0 0 8", "down down down up", "backup servers in")
	s.admin[backup2] = Override{Mode: ModeDrain}
	step("it is drained", "0 0 0 0", "down down down standby", "backup servers out")
	delete(s.admin, backup2)
	step("and taken back", "0 0 0 8", "down down down up", "backup servers in")
	// The quorum counts weight: a server of weight 2 does for up 2.
	s.vs.Quorum.Up = 3
	s.heal(rs2Addr)
	step("not enough", "0 0 0 8", "down standby down up", "")
	s.vs.Quorum.Up = 2
	step("enough", "0 2 0 0", "down up down standby", "quorum held, backup servers out")
	s.fail(rs2Addr)
	step("lost", "0 0 0 8", "down down down up", "quorum lost, backup servers in")
	s.vs.Backup = nil
	step("backup removed while in", "0 0", "down down", "backup servers out")
	s.vs.Backup = servers("10.1.0", 7, 8)
	step("and back", "0 0 0 8", "down down down up", "backup servers in")
}

// While the backup servers cannot help, what is left of the others goes on.
func TestBackupThatCannotHelp(t *testing.T) {
	t.Parallel()
	s := newSim(t, 1, 1)
	s.vs.Quorum.Up = 2
	s.vs.Backup = servers("10.1.0", 1)
	s.want(0, "1 1 0")
	s.fail(rs1Addr)
	s.want(0, "0 0 1")
	s.fail("10.1.0.1:80")
	s.want(0, "0 1 0")
	s.heal("10.1.0.1:80")
	s.vs.Backup[0].Weight = 0
	s.want(0, "0 1 0")
}

// Who stands by is treated as who failed: where on_failure removes, it is not in
// the table.
func TestStandbyRemoved(t *testing.T) {
	t.Parallel()
	s := newSim(t, 1, 1)
	s.vs.Quorum.Up = 2
	s.vs.Backup = servers("10.1.0", 1)
	for rs := range s.vs.Servers() {
		rs.OnFailure = config.OnFailureRemove
	}
	s.want(0, "1 1 -")
	s.fail(rs1Addr)
	s.want(0, "- - 1")
	s.heal(rs1Addr)
	s.want(0, "1 1 -")
}

func TestFailOpen(t *testing.T) {
	t.Parallel()
	s := newSim(t, 5, 3, 2)
	s.vs.FailOpenBelow = 50
	step := func(name, weights, alerts string) {
		t.Helper()
		s.want(0, weights)
		if got := s.alerts(); got != alerts {
			t.Errorf("%s: alerts: want %q, got %q", name, alerts, got)
		}
	}
	step("all well", "5 3 2", "first quorum held")
	s.fail(rs1Addr)
	step("half is well", "0 3 2", "")
	s.fail(rs3Addr)
	step("less", "5 3 2", "health ignored")
	rs := &s.fleet.Services[0].Servers[0]
	checkChain(t, rs)
	want := "configured 5, gate 5 (health is ignored: weight 3 of 10 is healthy, fail_open_below is 50 %), programmed 5"
	if got := chain(rs); got != want || rs.State != Down || rs.Gate != GateOpen || !rs.Present {
		t.Errorf("a failed server: want %s, %s, got %s, %s, %v, %v", Down, want, rs.State, got, rs.Gate, rs.Present)
	}
	s.fail(rs2Addr)
	step("none", "5 3 2", "quorum lost")
	s.heal(rs1Addr)
	step("half again", "5 0 0", "quorum held, health heeded again")
	// What operators took out has no say.
	s.admin[rs1Addr] = Override{Mode: ModeDrain}
	step("the healthy one is drained", "0 3 2", "quorum lost, health ignored")
	s.admin[rs1Addr] = Override{Mode: ModeDisable}
	step("the healthy one is disabled", "- 3 2", "")
	s.vs.FailOpenBelow = 0
	step("not wanted any more", "- 0 0", "health heeded again")
}

// Backup servers that can help come before servers of which nothing good is known,
// and a failed backup server is never let in.
func TestFailOpenWithBackup(t *testing.T) {
	t.Parallel()
	s := newSim(t, 1, 1)
	s.vs.FailOpenBelow = 100
	s.vs.Backup = servers("10.1.0", 1)
	s.want(0, "1 1 0")
	s.fail(rs1Addr)
	s.want(0, "1 1 0")
	s.fail(rs2Addr)
	s.want(0, "0 0 1")
	s.fail("10.1.0.1:80")
	s.want(0, "1 1 0")
}

// Who has failed, is needed all the same, and recovers, does not ramp down to come
// up.
func TestFailOpenAndSlowStart(t *testing.T) {
	t.Parallel()
	s := slow(t, 10*time.Second, 1, 1, 1)
	s.vs.FailOpenBelow = 50
	s.want(0, "100 100 100")
	s.fail(rs1Addr)
	s.want(0, "0 100 100")
	s.fail(rs2Addr)
	s.want(0, "100 100 100")
	s.heal(rs1Addr)
	s.want(0, "100 0 100")
	s.heal(rs2Addr)
	s.want(0, "100 1 100")
}

// Services that want nothing of it leave nothing to remember.
func TestPoliciesUnused(t *testing.T) {
	t.Parallel()
	s := newSim(t, 1)
	s.fail(rs1Addr)
	s.want(0, "0")
	if len(s.memory.Services) != 0 || s.alerts() != "" || s.fleet.Services[0].Quorum != QuorumNone {
		t.Errorf("want nothing, got %v, %q", s.memory.Services, s.alerts())
	}
}
