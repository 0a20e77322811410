package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/ipvs"
)

// restlessAgent says another weight each time, until it rests.
type restlessAgent struct {
	said    *atomic.Uint32
	resting *atomic.Bool
}

func (a restlessAgent) weight() string { return fmt.Sprint(100 + a.said.Load()) }

func (a restlessAgent) Key() string { return "restless" }

func (a restlessAgent) NewChecker(netip.AddrPort, healthcheck.Env) (healthcheck.Checker, error) {
	return a, nil
}

func (a restlessAgent) Check(context.Context) (healthcheck.Result, error) {
	if !a.resting.Load() {
		a.said.Add(1)
	}
	w := healthcheck.Weight{Kind: healthcheck.WeightAbsolute, Value: 100 + a.said.Load()}
	return healthcheck.Result{Advice: healthcheck.Advice{Weight: w}}, nil
}

// An agent that never rests fills neither the log nor the events, whose readers
// learn how much they were spared and what it came to. That the real server failed
// they learn at once.
func TestRestlessAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := restlessAgent{new(atomic.Uint32), new(atomic.Bool)}
		rs := r.checked(rs2, 1)
		rs.Probes = append(rs.Probes, healthcheck.Probe{
			Method: a, Target: netip.MustParseAddrPort(rs2), Advisory: true,
			Timing: healthcheck.Timing{Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1},
		})
		p := r.start(conf(service(vip, rs)))
		after(decided)
		_, seq := p.happened(0)
		const minutes = 5
		after(minutes * time.Minute)
		got, seq := p.happened(seq)
		if n := len(got); n < minutes || n > weightNewsAtOnce+minutes*6+1 {
			t.Errorf("in %d minutes: want at least one event a minute and at most six, and %d at once, got %d", minutes, weightNewsAtOnce, n)
		}
		if n := strings.Count(strings.Join(got, "\n"), "were not told: "); n < minutes {
			t.Errorf("want to be told what was not told, got %d times in %q", n, got)
		}
		r.net.set(rs2, errRefused)
		after(decided)
		if got, seq = p.happened(seq); !strings.Contains(strings.Join(got, "\n"), "down, weight 0") {
			t.Errorf("a failure is told at once, got %q", got)
		}
		r.net.set(rs2, nil)
		a.resting.Store(true)
		after(2 * time.Minute)
		if got, _ = p.happened(seq); !strings.Contains(strings.Join(got, "\n"), "up, weight "+a.weight()) {
			t.Errorf("want the last weight, %s, to be told, got %q", a.weight(), got)
		}
		if n := len(p.owner.weightNews); n != 1 {
			t.Errorf("want one real server remembered, got %d", n)
		}
		if err := p.switchTo(conf(service(vip))); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Minute)
		if n := len(p.owner.weightNews); n != 0 {
			t.Errorf("after it left: want none remembered, got %d", n)
		}
	})
}

// tellWeight counts changes, not passes.
func TestTellWeight(t *testing.T) {
	o := &owner{weightNews: make(map[ipvs.DestinationKey]weightNews)}
	now := time.Unix(1000, 0)
	tell := func(weight uint32, want bool, wantNote string) {
		t.Helper()
		note, ok := o.tellWeight(dkey(vip, rs2), weight, now)
		if ok != want || note != wantNote {
			t.Errorf("weight %d: want %t %q, got %t %q", weight, want, wantNote, ok, note)
		}
	}
	for w := range uint32(weightNewsAtOnce) {
		tell(w, true, "")
	}
	tell(50, false, "")
	tell(50, false, "")
	now = now.Add(weightNewsEvery)
	tell(50, true, "")
	tell(51, false, "")
	tell(52, false, "")
	tell(52, false, "")
	now = now.Add(weightNewsEvery)
	tell(53, true, "; changes of the weight before that were not told: 2")
	now = now.Add(time.Hour)
	for w := range uint32(weightNewsAtOnce) {
		tell(w, true, "")
	}
	tell(50, false, "")
}
