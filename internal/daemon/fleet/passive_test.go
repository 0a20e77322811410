package fleet

import (
	"fmt"
	"maps"
	"testing"
	"testing/quick"
	"time"

	"github.com/lbd-project/lbd/internal/config"
)

var (
	passive = config.Passive{
		Window: 10 * time.Second, Failures: 5, Ratio: 50, Hold: 30 * time.Second, MaxHold: 100 * time.Second, MaxEjected: 50,
	}
	failing = Handshakes{Good: 1, Unanswered: 3, Reset: 2, LateBad: 5}
	fine    = Handshakes{Good: 10, LateGood: 1}
)

// eject returns a sim with passive, of whose servers all are reached.
func eject(t *testing.T, weights ...uint32) *sim {
	s := newSim(t, weights...)
	s.vs.Passive = passive
	s.handshakes = map[string]Handshakes{}
	for i := range weights {
		s.handshakes[fmt.Sprintf("10.0.0.%d:80", i+1)] = fine
	}
	return s
}

func TestHandshakes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		h             Handshakes
		failing, well bool
	}{
		{Handshakes{}, false, false},
		{Handshakes{Good: 100, LateGood: 1}, false, true},
		{Handshakes{Good: 100}, false, false}, // not of late
		{Handshakes{Unanswered: 4}, false, false},
		{Handshakes{Unanswered: 5}, true, false},
		{Handshakes{Unanswered: 2, Reset: 2, Unreachable: 1}, true, false},
		{Handshakes{Good: 5, Reset: 5, LateGood: 1}, true, false},
		{Handshakes{Good: 6, Reset: 5, LateGood: 1}, false, true},
		{Handshakes{Good: 6, Reset: 5, LateGood: 1, LateBad: 1}, false, false},
		{Handshakes{Good: 6, Reset: 5, LateGood: 2, LateBad: 1}, false, true},
	} {
		if f, w := test.h.Failing(&passive), test.h.Well(&passive); f != test.failing || w != test.well {
			t.Errorf("%+v: want failing %v, well %v; got %v, %v", test.h, test.failing, test.well, f, w)
		}
	}
	if want, got := "6 of 7 connections failed, 3 unanswered, 2 reset, 1 unreachable", (Handshakes{Good: 1, Unanswered: 3, Reset: 2, Unreachable: 1}).String(); want != got {
		t.Errorf("want %q, got %q", want, got)
	}
}

// A server that fails is out for a time, twice as long each time in a row up to a
// bound, and as at first when it was good for long.
func TestEject(t *testing.T) {
	t.Parallel()
	s := eject(t, 3, 2, 2)
	s.want(0, "3 2 2")
	fail := func() { s.handshakes[rs2Addr] = failing }
	fail()
	s.want(time.Second, "3 0 2")
	rs := &s.fleet.Services[0].Servers[1]
	if want, got := "configured 2, passive 0 (taken out for 30s: 5 of 6 connections failed, 3 unanswered, 2 reset), programmed 0", chain(rs); want != got {
		t.Errorf("chain: want %s, got %s", want, got)
	}
	if want := "taken out for 30s: 5 of 6 connections failed, 3 unanswered, 2 reset; healthy"; rs.State != Ejected || rs.Reason != want || !rs.Present || rs.Gate != GateOpen {
		t.Errorf("want ejected: %q, got %s: %q, present %v, gate %v", want, rs.State, rs.Reason, rs.Present, rs.Gate)
	}
	if s.next() != 31*time.Second {
		t.Errorf("next: want 31s, got %v", s.next())
	}
	// What came before its return counts no more: the sim's does.
	s.want(31*time.Second-1, "3 0 2")
	s.want(31*time.Second, "3 2 2")
	if s.next() != -1 {
		t.Errorf("next: want never, got %v", s.next())
	}
	out := func(at, hold time.Duration) {
		t.Helper()
		s.always = true
		s.want(at, "3 0 2")
		s.always = false
		s.want(at+hold-1, "3 0 2")
		s.want(at+hold, "3 2 2")
	}
	out(40*time.Second, 60*time.Second)   // back at 100 s
	out(110*time.Second, 100*time.Second) // at most; back at 210 s
	out(400*time.Second, 100*time.Second) // not forgiven before 410 s; back at 500 s
	s.handshakes[rs2Addr] = fine
	s.want(700*time.Second-1, "3 2 2")
	if len(s.memory.Ejections) != 1 {
		t.Errorf("forgiven too early: %v", s.memory.Ejections)
	}
	s.want(700*time.Second, "3 2 2")
	if len(s.memory.Ejections) != 0 {
		t.Errorf("not forgiven: %v", s.memory.Ejections)
	}
	fail()
	s.want(701*time.Second, "3 0 2")
	s.want(731*time.Second, "3 2 2")
}

// How many may be out at a time, and which: the worst, in the order of the file,
// and those that are out already before others.
func TestEjectLimit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		percent, n, want int
	}{{50, 1, 0}, {50, 2, 1}, {50, 3, 1}, {50, 4, 2}, {100, 4, 3}, {10, 4, 1}, {1, 2, 1}, {100, 0, -1}} {
		if got := limit(test.n, test.percent); got != test.want {
			t.Errorf("%d %% of %d: want %d, got %d", test.percent, test.n, test.want, got)
		}
	}
	s := eject(t, 1, 1, 1, 1, 1)
	worse := failing
	worse.Reset++
	s.handshakes[rs1Addr], s.handshakes[rs2Addr], s.handshakes[rs3Addr] = failing, failing, worse
	s.want(0, "0 1 0 1 1")
	if want, got := "configured 1, passive 1 (stays in, 50 % are out already: 5 of 6 connections failed, 3 unanswered, 2 reset), programmed 1", chain(&s.fleet.Services[0].Servers[1]); want != got {
		t.Errorf("chain: want %s, got %s", want, got)
	}
	worse.Reset = 1000
	s.handshakes[rs2Addr] = worse
	s.want(time.Second, "0 1 0 1 1")
	// As others leave the rotation, who is out comes back: the one that was out for
	// longest first.
	s.fail("10.0.0.4:80")
	s.fail("10.0.0.5:80")
	s.handshakes[rs2Addr] = fine
	s.want(2*time.Second, "0 1 1 0 0")
	s.fail(rs2Addr)
	s.fail(rs3Addr)
	s.want(3*time.Second, "1 0 0 0 0")
}

// Nobody is taken out where all fail alike, or where nothing shows that the service
// can be reached, nor the only one, nor while health is ignored.
func TestEjectNobody(t *testing.T) {
	t.Parallel()
	s := eject(t, 1, 1, 1)
	for _, addr := range []string{rs1Addr, rs2Addr, rs3Addr} {
		s.handshakes[addr] = failing
	}
	s.want(0, "1 1 1")
	if want, got := "stays in, no other real server is reached any better: 5 of 6 connections failed, 3 unanswered, 2 reset; healthy", s.fleet.Services[0].Servers[0].Reason; want != got {
		t.Errorf("reason: want %q, got %q", want, got)
	}
	s.handshakes[rs3Addr] = Handshakes{} // no connections at all
	s.want(time.Second, "1 1 1")
	s.handshakes[rs3Addr] = Handshakes{Good: 100} // long ago
	s.want(2*time.Second, "1 1 1")
	s.handshakes[rs3Addr] = Handshakes{Good: 100, Reset: 1, LateGood: 1, LateBad: 1} // begins to fail
	s.want(3*time.Second, "1 1 1")
	s.fail(rs3Addr)
	s.handshakes[rs3Addr] = fine // but not in rotation
	s.want(4*time.Second, "1 1 0")
	s.heal(rs3Addr)
	s.want(5*time.Second, "0 1 1")

	only := eject(t, 1)
	only.handshakes[rs1Addr] = failing
	only.want(0, "1")

	ignored := eject(t, 1, 1, 1)
	ignored.vs.FailOpenBelow = 50
	ignored.handshakes[rs1Addr] = failing
	ignored.want(0, "0 1 1")
	ignored.fail(rs2Addr)
	ignored.fail(rs3Addr)
	ignored.want(time.Second, "1 1 1")
	ignored.heal(rs2Addr)
	ignored.want(2*time.Second, "0 1 0")

	off := eject(t, 1, 1)
	off.vs.Passive = config.Passive{}
	off.handshakes[rs1Addr] = failing
	off.want(0, "1 1")
	off.vs.Passive = passive
	off.want(1, "0 1")
	off.vs.Passive = config.Passive{}
	off.want(2, "1 1")
	if len(off.memory.Ejections) != 0 {
		t.Errorf("remembered without passive: %v", off.memory.Ejections)
	}
}

// Who comes back begins slowly, where there is a slow start.
func TestEjectSlowStart(t *testing.T) {
	t.Parallel()
	s := eject(t, 1, 1)
	s.vs.SlowStart = 10 * time.Second
	s.handshakes[rs2Addr] = failing
	s.want(0, "100 0")
	s.handshakes[rs2Addr] = fine
	s.want(30*time.Second, "100 1")
	s.want(35*time.Second, "100 50")
	s.want(40*time.Second, "100 100")
}

// on_failure says whether an ejected server stays in the table.
func TestEjectRemove(t *testing.T) {
	t.Parallel()
	s := eject(t, 1, 1)
	s.vs.RealServers[1].OnFailure = config.OnFailureRemove
	s.handshakes[rs2Addr] = failing
	s.want(0, "1 -")
	s.want(30*time.Second, "1 1")
}

// Whatever connections do, a service whose health did not change keeps at least one
// real server, no more are out than may be, and the decision does not depend on how
// often it is made.
func TestEjectAlwaysLeavesOne(t *testing.T) {
	t.Parallel()
	check := func(bad, good, late [6]uint8, down uint8, percent uint8, steps [8]uint8) bool {
		s := eject(t, 1, 1, 1, 1, 1, 1)
		s.vs.Passive.MaxEjected = int(percent)%100 + 1
		at := time.Duration(0)
		for step, d := range steps {
			up := 0
			for i := range 6 {
				addr := fmt.Sprintf("10.0.0.%d:80", i+1)
				n := (i + step) % 6
				s.handshakes[addr] = Handshakes{Good: uint64(good[n]), Reset: uint64(bad[n] % 16), LateGood: uint64(late[n] % 4), LateBad: uint64(late[n] / 64)}
				s.heal(addr)
				if down>>n&1 != 0 {
					s.fail(addr)
				} else {
					up++
				}
			}
			first := s.weights(at)
			if again := s.weights(at); again != first {
				t.Errorf("decided again: want %s, got %s", first, again)
				return false
			}
			out := 0
			for _, rs := range s.fleet.Services[0].Servers {
				if rs.State == Ejected {
					out++
				}
			}
			if up > 0 && out > limit(up, s.vs.Passive.MaxEjected) {
				t.Errorf("%d of %d are out, %d %% may be", out, up, s.vs.Passive.MaxEjected)
				return false
			}
			at += time.Duration(d) * time.Second
		}
		return true
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 500}); err != nil {
		t.Error(err)
	}
}

// Memory is the same if all of it is.
func TestEjectionsInMemory(t *testing.T) {
	t.Parallel()
	s := eject(t, 1, 1)
	s.handshakes[rs2Addr] = failing
	s.decide(0)
	c := s.memory
	c.Ejections = maps.Clone(c.Ejections)
	if len(c.Ejections) == 0 || !s.memory.Equal(c) {
		t.Errorf("want a copy of %+v that is equal, got %+v", s.memory, c)
	}
	delete(c.Ejections, dkey(vip, rs2Addr))
	if s.memory.Equal(c) {
		t.Error("equal without what it remembers")
	}
}
