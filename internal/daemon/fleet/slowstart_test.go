package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
)

const rs1Addr, rs2Addr, rs3Addr = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"

// slow returns a sim with a slow start.
func slow(t *testing.T, over time.Duration, weights ...uint32) *sim {
	s := newSim(t, weights...)
	s.vs.SlowStart = over
	return s
}

func (s *sim) fail(addr string) { s.is[addr] = failed }
func (s *sim) heal(addr string) { delete(s.is, addr) }

func TestSlowStart(t *testing.T) {
	t.Parallel()
	s := slow(t, 100*time.Second, 1, 2)
	// Not at the first start, and not from pending to up.
	s.is[rs1Addr], s.is[rs2Addr] = healthcheck.Status{}, healthcheck.Status{}
	s.want(0, "100 200")
	s.heal(rs1Addr)
	s.heal(rs2Addr)
	s.want(1*time.Second, "100 200")
	s.fail(rs2Addr)
	s.want(10*time.Second, "100 0")
	if s.next() != -1 {
		t.Errorf("next: want never, got %v", s.next())
	}
	s.heal(rs2Addr)
	s.want(20*time.Second, "100 1") // never 0
	if want, got := "slow start: 0 % after 0s of 1m40s; healthy", s.fleet.Services[0].Servers[1].Reason; want != got {
		t.Errorf("reason: want %q, got %q", want, got)
	}
	for percent := 1; percent < 100; percent++ {
		after := time.Duration(20+percent) * time.Second
		if s.next() != after {
			t.Fatalf("next step: want %v, got %v", after, s.next())
		}
		s.want(after, fmt.Sprintf("100 %d", 2*percent))
		s.want(after+999*time.Millisecond, fmt.Sprintf("100 %d", 2*percent)) // no finer steps
	}
	s.want(120*time.Second, "100 200")
	if s.next() != -1 || len(s.memory.Servers) != 0 {
		t.Errorf("at the end: want no next step and no memory, got %v, %v", s.next(), s.memory.Servers)
	}
}

func TestSlowStartRestarts(t *testing.T) {
	t.Parallel()
	s := slow(t, 10*time.Second, 1, 1)
	s.want(0, "100 100")
	s.fail(rs2Addr)
	s.want(1*time.Second, "100 0")
	s.heal(rs2Addr)
	s.want(2*time.Second, "100 1")
	s.want(7*time.Second, "100 50")
	s.fail(rs2Addr)
	s.want(8*time.Second, "100 0")
	s.heal(rs2Addr)
	s.want(9*time.Second, "100 1")
	s.want(14*time.Second, "100 50")
}

// A ramp is for a server beside others: who is alone has all the work anyway, and
// stays where it is when another one comes.
func TestSlowStartOnlySurvivor(t *testing.T) {
	t.Parallel()
	s := slow(t, 10*time.Second, 1, 1)
	s.want(0, "100 100")
	s.fail(rs1Addr)
	s.fail(rs2Addr)
	s.want(1*time.Second, "0 0")
	s.heal(rs1Addr)
	s.want(2*time.Second, "100 0")
	if s.next() != -1 {
		t.Errorf("next of an only survivor: want never, got %v", s.next())
	}
	s.heal(rs2Addr)
	s.want(3*time.Second, "100 1")
	// The full one fails: the ramp is over at once, and does not come back.
	s.fail(rs1Addr)
	s.want(4*time.Second, "0 100")
	s.heal(rs1Addr)
	s.want(5*time.Second, "1 100")
}

// One that others stand beside with weight 0 is alone, too.
func TestSlowStartOnlySurvivorBesideZero(t *testing.T) {
	t.Parallel()
	s := slow(t, 10*time.Second, 0, 5, 5)
	s.admin[rs3Addr] = Override{Mode: ModeDrain}
	s.fail(rs2Addr)
	s.want(0, "0 0 0")
	s.heal(rs2Addr)
	s.want(time.Second, "0 500 0")
}

// All that come back together ramp together: their shares are right from the
// first moment.
func TestSlowStartTogether(t *testing.T) {
	t.Parallel()
	s := slow(t, 10*time.Second, 1, 3)
	s.fail(rs1Addr)
	s.fail(rs2Addr)
	s.want(0, "0 0")
	s.heal(rs1Addr)
	s.heal(rs2Addr)
	s.want(1*time.Second, "1 1")
	s.want(6*time.Second, "50 150")
	s.want(11*time.Second, "100 300")
}

// One constant for all servers, whoever ramps, as large as the weights allow.
func TestSlowStartScale(t *testing.T) {
	t.Parallel()
	tests := []struct {
		weights []uint32
		want    string
	}{
		{[]uint32{1, 1}, "100 100"},
		{[]uint32{655, 1}, "65500 100"},
		{[]uint32{656, 1}, "64944 99"},
		{[]uint32{65535, 1}, "65535 1"},
		{[]uint32{0, 0}, "0 0"},
		{[]uint32{30000, 0}, "60000 0"},
	}
	for _, tt := range tests {
		s := slow(t, time.Minute, tt.weights...)
		s.want(0, tt.want)
	}
	// A backup server that stands by counts, and so does what an operator wants.
	s := slow(t, time.Minute, 1, 1)
	s.vs.Backup = servers("10.1.0", 3000)
	s.want(0, "21 21 0")
	s = slow(t, time.Minute, 1, 1)
	s.admin[rs2Addr] = Override{Weight: &WeightOverride{To: 3000, Begun: s.begun, Over: time.Minute}, Configured: 1}
	s.want(0, "21 0")
	s.want(time.Minute, "21 63000")
	// What an agent asks for beyond the configured weight must not be cut off.
	s = slow(t, time.Minute, 600, 1)
	s.is[rs1Addr] = healthcheck.Status{State: healthcheck.Up, Advice: percent(200)}
	s.want(0, "64800 54")
}

// A server whose checks start down, and have never failed, does not come back.
func TestSlowStartNotAtFirstStart(t *testing.T) {
	t.Parallel()
	s := slow(t, 10*time.Second, 1, 1)
	s.is[rs2Addr] = healthcheck.Status{State: healthcheck.Down, Streak: 1}
	s.want(0, "100 0")
	s.heal(rs2Addr)
	s.want(time.Second, "100 100")
	// Nor does it once it failed and its checks start anew.
	s.fail(rs2Addr)
	s.want(2*time.Second, "100 0")
	s.is[rs2Addr] = healthcheck.Status{State: healthcheck.Down}
	s.want(3*time.Second, "100 0")
	s.heal(rs2Addr)
	s.want(4*time.Second, "100 1")
}

// Who was disabled was away, who was drained was not.
func TestSlowStartAfterAdmin(t *testing.T) {
	t.Parallel()
	s := slow(t, 10*time.Second, 1, 1)
	s.want(0, "100 100")
	s.admin[rs2Addr] = Override{Mode: ModeDrain}
	s.want(1*time.Second, "100 0")
	delete(s.admin, rs2Addr)
	s.want(2*time.Second, "100 100")
	s.admin[rs2Addr] = Override{Mode: ModeDisable}
	s.want(3*time.Second, "100 -")
	delete(s.admin, rs2Addr)
	s.want(4*time.Second, "100 1")
	// A ramp goes on while a drain hides it.
	s.admin[rs2Addr] = Override{Mode: ModeDrain}
	s.want(5*time.Second, "100 0")
	delete(s.admin, rs2Addr)
	s.want(9*time.Second, "100 50")
}

// A reload may set, change and take away the key; a ramp that another length has
// ended is over.
func TestSlowStartReload(t *testing.T) {
	t.Parallel()
	s := slow(t, 10*time.Second, 1, 1)
	s.fail(rs2Addr)
	s.want(0, "100 0")
	s.heal(rs2Addr)
	s.want(1*time.Second, "100 1")
	s.vs.SlowStart = 20 * time.Second
	s.want(6*time.Second, "100 25")
	s.vs.SlowStart = 4 * time.Second
	s.want(7*time.Second, "100 100")
	s.vs.SlowStart = time.Minute
	s.want(8*time.Second, "100 100")
	s.vs.SlowStart = 0
	s.want(9*time.Second, "1 1")
	// A server that was down when the key came ramps.
	s.fail(rs2Addr)
	s.want(10*time.Second, "1 0")
	s.vs.SlowStart = 10 * time.Second
	s.heal(rs2Addr)
	s.want(11*time.Second, "100 1")
}

// A clock that goes back begins a ramp anew at the most.
func TestSlowStartClockGoesBack(t *testing.T) {
	t.Parallel()
	s := slow(t, 10*time.Second, 1, 1)
	s.fail(rs2Addr)
	s.want(0, "100 0")
	s.heal(rs2Addr)
	s.want(time.Minute, "100 1")
	s.want(time.Second, "100 1")
}
