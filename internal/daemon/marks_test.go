package daemon

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
)

// marks prints what the API says of services and real servers besides states.
func (p *process) marks() string {
	p.r.t.Helper()
	services, err := p.Services(context.Background())
	if err != nil {
		p.r.t.Fatal(err)
	}
	var words []string
	for _, s := range services {
		words = append(words, fmt.Sprintf("%s quorum=%s backup=%t ignored=%t:", s.Address, s.Quorum, s.BackupIn, s.HealthIgnored))
		for _, rs := range s.RealServers {
			if rs.Backup || rs.Ramping || rs.HealthIgnored {
				words = append(words, fmt.Sprintf("%s backup=%t ramping=%t ignored=%t", rs.Address, rs.Backup, rs.Ramping, rs.HealthIgnored))
			}
		}
	}
	return strings.Join(words, " ")
}

// Policies at work are told of each service and real server, and counted.
func TestMarks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		backed := service(vip, r.checked(rs2, 3))
		backed.Backup = []config.RealServer{server(rs4, 1)}
		open := service(vip2, r.checked(rs2, 3), r.checked(rs3, 1))
		open.FailOpenBelow = 50
		p := r.start(conf(backed, open, service("192.0.2.3:80", server(rs2, 1))))
		after(decided)
		want := func(marks string, policies api.Policies) {
			t.Helper()
			if diff := cmp.Diff(marks, p.marks()); diff != "" {
				t.Errorf("marks (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(policies, p.mustStatus().Policies); diff != "" {
				t.Errorf("policies (-want +got):\n%s", diff)
			}
		}
		want("192.0.2.1:80 quorum=held backup=false ignored=false: 10.0.0.4:80 backup=true ramping=false ignored=false "+
			"192.0.2.2:80 quorum=held backup=false ignored=false: 192.0.2.3:80 quorum= backup=false ignored=false:", api.Policies{})
		r.net.set(rs2, errRefused)
		after(decided)
		five := uint32(5)
		p.say("web-192.0.2.3:80/"+rs2, api.AdminRequest{Weight: &five, OverSeconds: 100})
		want("192.0.2.1:80 quorum=lost backup=true ignored=false: 10.0.0.4:80 backup=true ramping=false ignored=false "+
			"192.0.2.2:80 quorum=held backup=false ignored=true: 10.0.0.2:80 backup=false ramping=false ignored=true "+
			"192.0.2.3:80 quorum= backup=false ignored=false: 10.0.0.2:80 backup=false ramping=true ignored=false",
			api.Policies{QuorumLost: 1, BackupIn: 1, HealthIgnored: 1, Ramping: 1})
	})
}

// The figures of the checks are those of the monitor.
func TestChecksOf(t *testing.T) {
	now := time.Now()
	want := api.Checks{
		Probes: 5, Running: 2, Waiting: 1, Overdue: 6, Results: 30, Failures: 4, Skipped: 3,
		LagSeconds: 0.25, LagMaxSeconds: 1.5, HeartbeatSeconds: 7,
	}
	got := checksOf(healthcheck.Stats{
		Probes: 5, Running: 2, Waiting: 1, Overdue: 6, Starts: 40, Checks: 30, Failures: 4, Skipped: 3,
		LagTotal: 10 * time.Second, LagMax: 1500 * time.Millisecond, LastTick: now.Add(-7 * time.Second),
	}, now)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
	if got := checksOf(healthcheck.Stats{}, now); got != (api.Checks{HeartbeatSeconds: -1}) {
		t.Errorf("before the start: got %+v", got)
	}
}

// Status says how late checks are, and since when a part of lbd stands still.
func TestStatusOfChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 3)), service(vip2, r.checked(rs2, 1))))
		r.net.set(rs3, errRefused)
		after(time.Minute)
		s := p.mustStatus()
		c := s.Checks
		if c.Probes != 2 || c.Results < 100 || c.Failures < 50 || c.Failures >= c.Results {
			t.Errorf("checks: want 2 probes with more than 100 results, half of them failures, got %+v", c)
		}
		for what, beat := range map[string]float64{"checks": c.HeartbeatSeconds, "table": s.Sync.HeartbeatSeconds} {
			if beat < 0 || beat > 1.5 {
				t.Errorf("heartbeat of %s: want one each second, got %v", what, beat)
			}
		}
	})
}
