package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
)

// Weights of 0 by the file, by an operator and by a failed check are three things,
// and a disabled server is a fourth.
func TestChain(t *testing.T) {
	t.Parallel()
	type want struct {
		Chain   string
		State   State
		Health  State
		Present bool
		Gate    Gate
		Reason  string
	}
	weight := func(to, configured uint32) Override {
		return Override{Weight: &WeightOverride{To: to}, Configured: configured, By: "root"}
	}
	tests := []struct {
		name   string
		weight uint32
		admin  Override
		is     healthcheck.Status
		remove bool
		want   want
	}{
		{
			name: "plain", weight: 3, is: healthcheck.Status{State: healthcheck.Up},
			want: want{"configured 3, programmed 3", Up, Up, true, GateOpen, "healthy"},
		},
		{
			name: "configured 0", weight: 0, is: healthcheck.Status{State: healthcheck.Up},
			want: want{"configured 0, programmed 0", Up, Up, true, GateOpen, "configured 0; healthy"},
		},
		{
			name: "failed 0", weight: 3, is: failed,
			want: want{"configured 3, gate 0 (failed: 10.0.0.1:80 10.0.0.1:80: refused), programmed 0", Down, Down, true, GateFailed,
				"failed: 10.0.0.1:80 10.0.0.1:80: refused"},
		},
		{
			name: "drained 0", weight: 3, admin: Override{Mode: ModeDrain, By: "root"}, is: healthcheck.Status{State: healthcheck.Up},
			want: want{"configured 3, admin 0 (drained by root), programmed 0", Drained, Up, true, GateOpen, "drained by root; healthy"},
		},
		{
			name: "drained and failed", weight: 3, admin: Override{Mode: ModeDrain}, is: failed,
			want: want{"configured 3, admin 0 (drained by an operator), gate 0 (failed: 10.0.0.1:80 10.0.0.1:80: refused), programmed 0",
				Down, Down, true, GateFailed, "drained by an operator; failed: 10.0.0.1:80 10.0.0.1:80: refused"},
		},
		{
			name: "drained, failed and removed", weight: 3, admin: Override{Mode: ModeDrain}, is: failed, remove: true,
			want: want{"configured 3, admin 0 (drained by an operator), gate 0 (failed: 10.0.0.1:80 10.0.0.1:80: refused), programmed 0",
				Down, Down, false, GateFailed, "drained by an operator; failed: 10.0.0.1:80 10.0.0.1:80: refused"},
		},
		{
			name: "disabled", weight: 3, admin: Override{Mode: ModeDisable, By: "root"}, is: healthcheck.Status{State: healthcheck.Up},
			want: want{"configured 3, admin 0 (disabled by root), gate 0 (healthy), programmed 0", Disabled, Up, false, GateDisabled, "disabled by root; healthy"},
		},
		{
			name: "disabled and failed", weight: 3, admin: Override{Mode: ModeDisable, By: "root"}, is: failed,
			want: want{"configured 3, admin 0 (disabled by root), gate 0 (failed: 10.0.0.1:80 10.0.0.1:80: refused), programmed 0",
				Disabled, Down, false, GateDisabled, "disabled by root; failed: 10.0.0.1:80 10.0.0.1:80: refused"},
		},
		{
			name: "a weight by an operator", weight: 3, admin: weight(7, 3), is: healthcheck.Status{State: healthcheck.Up},
			want: want{"configured 3, admin 7 (weight 7 by root), programmed 7", Up, Up, true, GateOpen, "weight 7 by root; healthy"},
		},
		{
			name: "an operator lifts a configured 0", weight: 0, admin: weight(7, 0), is: healthcheck.Status{State: healthcheck.Up},
			want: want{"configured 0, admin 7 (weight 7 by root), programmed 7", Up, Up, true, GateOpen, "configured 0; weight 7 by root; healthy"},
		},
		{
			name: "an operator's 0", weight: 3, admin: weight(0, 3), is: healthcheck.Status{State: healthcheck.Up},
			want: want{"configured 3, admin 0 (weight 0 by root), programmed 0", Up, Up, true, GateOpen, "weight 0 by root; healthy"},
		},
		{
			name: "an operator's weight does not lift a failed check", weight: 3, admin: weight(7, 3), is: failed,
			want: want{"configured 3, admin 7 (weight 7 by root), gate 0 (failed: 10.0.0.1:80 10.0.0.1:80: refused), programmed 0",
				Down, Down, true, GateFailed, "weight 7 by root; failed: 10.0.0.1:80 10.0.0.1:80: refused"},
		},
		{
			name: "a newer configuration drops it", weight: 4, admin: weight(7, 3), is: healthcheck.Status{State: healthcheck.Up},
			want: want{"configured 4, admin 4 (weight 7 by root dropped: the configured weight was 3 then), programmed 4", Up, Up, true, GateOpen,
				"weight 7 by root dropped: the configured weight was 3 then; healthy"},
		},
		{
			name: "a drain with a weight for later", weight: 3, is: healthcheck.Status{State: healthcheck.Up},
			admin: Override{Mode: ModeDrain, Weight: &WeightOverride{To: 7}, Configured: 3, By: "root"},
			want: want{"configured 3, admin 0 (drained by root; weight 7 by root), programmed 0", Drained, Up, true, GateOpen,
				"drained by root; weight 7 by root; healthy"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSim(t, tt.weight)
			if tt.remove {
				s.vs.RealServers[0].OnFailure = config.OnFailureRemove
			}
			s.is["10.0.0.1:80"], s.admin["10.0.0.1:80"] = tt.is, tt.admin
			rs := &s.decide(0).Services[0].Servers[0]
			checkChain(t, rs)
			got := want{chain(rs), rs.State, rs.Health, rs.Present, rs.Gate, rs.Reason}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// The configured weight and the programmed one are two variables: an edit while
// the server is down is there the moment it recovers, as is one of an operator.
func TestWeightEditedWhileFailed(t *testing.T) {
	t.Parallel()
	s := newSim(t, 11, 1)
	s.is["10.0.0.1:80"] = failed
	s.want(0, "0 1")
	s.vs.RealServers[0].Weight = 9
	s.want(time.Second, "0 1")
	delete(s.is, "10.0.0.1:80")
	s.want(2*time.Second, "9 1")
	s.is["10.0.0.1:80"] = failed
	s.admin["10.0.0.1:80"] = Override{Weight: &WeightOverride{To: 4}, Configured: 9}
	s.want(3*time.Second, "0 1")
	delete(s.is, "10.0.0.1:80")
	s.want(4*time.Second, "4 1")
}

// A ramp says when it goes on, and nothing once it is at its end.
func TestWeightRamp(t *testing.T) {
	t.Parallel()
	s := newSim(t, 10, 1)
	s.admin["10.0.0.1:80"] = Override{
		Weight: &WeightOverride{From: 10, To: 30, Begun: s.begun, Over: 10 * time.Second}, Configured: 10, By: "root",
	}
	s.want(0, "10 1")
	rs := s.fleet.Services[0].Servers[0]
	if want := "weight 30 by root, from 10 over 10s; healthy"; rs.Reason != want || !rs.Ramping {
		t.Errorf("reason: want %q, ramping, got %q, %v", want, rs.Reason, rs.Ramping)
	}
	for i := 1; i < 10; i++ {
		after := time.Duration(i) * time.Second
		if s.next() != after {
			t.Errorf("next: want %v, got %v", after, s.next())
		}
		s.want(after, []string{"", "12 1", "14 1", "16 1", "18 1", "20 1", "22 1", "24 1", "26 1", "28 1"}[i])
	}
	s.want(10*time.Second, "30 1")
	rs = s.fleet.Services[0].Servers[0]
	if s.next() != -1 || rs.Ramping || rs.Reason != "weight 30 by root; healthy" {
		t.Errorf("at the end: want no next, no ramp, got %v, %v, %q", s.next(), rs.Ramping, rs.Reason)
	}
}
