package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/ipvs"
)

// talker is an agent that says what a test has it say, with another reason each time.
type talker struct {
	mu    sync.Mutex
	says  healthcheck.Advice
	err   error
	asked int
}

func (a *talker) Key() string { return "talker" }

func (a *talker) NewChecker(netip.AddrPort, healthcheck.Env) (healthcheck.Checker, error) {
	return a, nil
}

func (a *talker) Check(context.Context) (healthcheck.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	says := a.says
	says.Reason = fmt.Sprint("load ", a.asked)
	return healthcheck.Result{Advice: says}, a.err
}

func (a *talker) say(says healthcheck.Advice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.says, a.err = says, nil
}

func (a *talker) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = errRefused
}

// asked returns a probe that asks an agent on port 9707.
func asked(a *talker, interval time.Duration) healthcheck.Probe {
	return healthcheck.Probe{
		Method: a, Target: netip.MustParseAddrPort("10.0.0.2:9707"), Advisory: true,
		Timing: healthcheck.Timing{Interval: interval, Timeout: time.Second, Rise: 1, Fall: 1},
	}
}

func percent(n uint32) healthcheck.Weight {
	return healthcheck.Weight{Kind: healthcheck.WeightPercent, Value: n}
}

// What an agent said last holds over kill -9, with no write to the table, whether it
// can be reached again or not, until it says something else.
func TestKillKeepsAdvice(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		says  healthcheck.Advice
		table string
		state fleet.State
		// next is what the agent says later, then what that makes of it.
		next healthcheck.Advice
		then string
	}{
		{"drain", healthcheck.Advice{Admin: healthcheck.SaysDrain}, "10.0.0.2:80=0 10.0.0.3:80=2", fleet.Drained,
			healthcheck.Advice{Admin: healthcheck.SaysReady, Weight: percent(50)}, "10.0.0.2:80=50 10.0.0.3:80=2"},
		{"maint", healthcheck.Advice{Admin: healthcheck.SaysMaint}, "10.0.0.3:80=2", fleet.Disabled,
			healthcheck.Advice{Admin: healthcheck.SaysReady}, "10.0.0.2:80=100 10.0.0.3:80=2"},
		{"down", healthcheck.Advice{Health: healthcheck.SaysDown}, "10.0.0.2:80=0 10.0.0.3:80=2", fleet.Down,
			healthcheck.Advice{Health: healthcheck.SaysUp}, "10.0.0.2:80=100 10.0.0.3:80=2"},
		{"weight", healthcheck.Advice{Admin: healthcheck.SaysReady, Weight: percent(30)}, "10.0.0.2:80=30 10.0.0.3:80=2", fleet.Up,
			healthcheck.Advice{Admin: healthcheck.SaysDrain}, "10.0.0.2:80=0 10.0.0.3:80=2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				a := new(talker)
				rs := r.checked(rs2, 100)
				rs.Probes = append(rs.Probes, asked(a, time.Second))
				c := conf(service(vip, rs, r.checked(rs3, 2)))
				p := r.start(c)
				after(decided)
				// Whenever lbd dies, what it acts on must have been written down.
				r.table.SetHooks(hooks(func(op ipvs.Op) {
					if op.Destination.Weight != 100 && len(r.load().Advice) == 0 {
						t.Errorf("%v is written before the advice is", op)
					}
				}))
				a.say(tt.says)
				after(decided)
				r.table.SetHooks(hooks(nil))
				r.wantTable("TCP 192.0.2.1:80 wlc: " + tt.table)
				saves := r.saves
				after(10 * time.Minute)
				if r.saves != saves {
					t.Errorf("saves in 10 minutes with another reason each second: want 0, got %d", r.saves-saves)
				}
				_, before := p.stateOf(vip, rs2)
				p.kill()

				a.leave()
				r.table.ResetRequests()
				for range 2 {
					p = r.start(c)
					after(time.Minute)
					p.kill()
				}
				p = r.start(c)
				// A reload keeps it, and so does another interval.
				rs.Probes = []healthcheck.Probe{rs.Probes[0], asked(a, 3*time.Second)}
				if err := p.switchTo(conf(service(vip, rs, r.checked(rs3, 2)))); err != nil {
					t.Fatal(err)
				}
				after(time.Minute)
				r.wantTable("TCP 192.0.2.1:80 wlc: " + tt.table)
				if n := r.table.Requests().Writes; n != 0 {
					t.Errorf("writes of restarts over a right table: want 0, got %d", n)
				}
				state, reason := p.stateOf(vip, rs2)
				said, _, _ := strings.Cut(before, " (load")
				if state != tt.state || !strings.HasPrefix(reason, said) {
					t.Errorf("state: want %s, %s, got %s, %s", tt.state, said, state, reason)
				}
				a.say(tt.next)
				after(decided)
				r.wantTable("TCP 192.0.2.1:80 wlc: " + tt.then)
			})
		})
	}
}

// What one agent said is nothing that another one says.
func TestAdviceOfAnotherAgent(t *testing.T) {
	t.Parallel()
	for _, next := range []struct {
		name string
		edit func(*healthcheck.Probe)
		want string
	}{
		{"same", func(*healthcheck.Probe) {}, "0"},
		{"another interval", func(p *healthcheck.Probe) { p.Interval = 2 * time.Second }, "0"},
		{"another port", func(p *healthcheck.Probe) { p.Target = netip.MustParseAddrPort("10.0.0.2:9708") }, "100"},
	} {
		t.Run(next.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				a := &talker{says: healthcheck.Advice{Admin: healthcheck.SaysDrain}}
				with := func(p healthcheck.Probe) *config.Config {
					rs := r.checked(rs2, 100)
					rs.Probes = append(rs.Probes, p)
					return conf(service(vip, rs))
				}
				p := r.start(with(asked(a, time.Second)))
				after(decided)
				r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0")
				p.kill()
				a.leave()
				probe := asked(a, time.Second)
				next.edit(&probe)
				p = r.start(with(probe))
				r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=" + next.want)

				// Without it nothing is kept.
				if err := p.switchTo(conf(service(vip, r.checked(rs2, 100)))); err != nil {
					t.Fatal(err)
				}
				r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=100")
				if m := r.load(); len(m.Advice) != 0 {
					t.Errorf("advice without an agent: want none, got %v", m.Advice)
				}
			})
		})
	}
}
