package daemon

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/internal/config"
)

// slowService is a service whose servers take their time.
func slowService(r *rig, over time.Duration) config.VirtualService {
	vs := service(vip, r.checked(rs2, 1), r.checked(rs3, 2))
	vs.SlowStart = over
	return vs
}

// weightOf returns the weight in the table; -1 if the server is not there.
func (r *rig) weightOf(rs string) int {
	r.t.Helper()
	for line := range strings.Lines(r.tableText()) {
		for field := range strings.FieldsSeq(line) {
			if w, ok := strings.CutPrefix(field, rs+"="); ok {
				var n int
				if _, err := fmt.Sscan(w, &n); err != nil {
					r.t.Fatal(err)
				}
				return n
			}
		}
	}
	return -1
}

// comeBack lets rs3 fail and recover, and returns the moment at which it is back.
func comeBack(r *rig) time.Time {
	r.t.Helper()
	after(decided)
	r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=100 10.0.0.3:80=200")
	r.net.set(rs3, errRefused)
	after(decided)
	r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=100 10.0.0.3:80=0")
	r.net.set(rs3, nil)
	for r.weightOf(rs3) == 0 {
		after(100 * time.Millisecond)
	}
	return time.Now()
}

// The table follows the ramp by itself, within each step, and the log is not full
// of it.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(conf(slowService(r, 100*time.Second)))
		back := comeBack(r)
		before := len(r.log.String())
		for i := 1; i < 100; i++ {
			after(time.Until(back.Add(time.Duration(i)*time.Second + 50*time.Millisecond)))
			if got := r.weightOf(rs3); got != 2*i {
				t.Fatalf("weight after %d s: want %d, got %d", i, 2*i, got)
			}
		}
		after(2 * time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=100 10.0.0.3:80=200")
		if log := r.log.String()[before:]; strings.Contains(log, "real server") {
			t.Errorf("log of the ramp: want nothing, got\n%s", log)
		}
		r.table.ResetRequests()
		after(10 * time.Minute)
		if n := r.table.Requests().Writes; n != 0 {
			t.Errorf("writes after the ramp: want 0, got %d", n)
		}
	})
}

// A ramp goes on over a reload and over kill -9, by the time that passes and not
// by the clock on the wall.
func TestSlowStartSurvives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := func() *config.Config { return conf(slowService(r, 100*time.Second)) }
		p := r.start(c())
		back := comeBack(r)
		after(time.Until(back.Add(20*time.Second + 50*time.Millisecond)))
		// One service more, so that the memory is saved at that moment.
		c = func() *config.Config { return conf(slowService(r, 100*time.Second), service(vip2, server(rs4, 1))) }
		if err := p.switchTo(c()); err != nil {
			t.Fatal(err)
		}
		if got := r.weightOf(rs3); got != 40 {
			t.Errorf("weight after a reload at 20 s: want 40, got %d", got)
		}
		p.kill()
		after(30 * time.Second)
		if got := r.weightOf(rs3); got != 40 {
			t.Errorf("weight while lbd is dead: want 40, got %d", got)
		}
		r.start(c())
		if got := r.weightOf(rs3); got != 100 {
			t.Errorf("weight after a restart at 50 s: want 100, got %d", got)
		}
		after(51 * time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=100 10.0.0.3:80=200", "TCP 192.0.2.2:80 wlc: 10.0.0.4:80=1")
	})
}

// A server that was down when lbd was killed ramps when it comes back, and none
// does at the first start.
func TestSlowStartAfterRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.start(conf(slowService(r, 100*time.Second)))
		after(decided)
		r.net.set(rs3, errRefused)
		after(decided)
		p.kill()
		r.net.set(rs3, nil)
		r.start(conf(slowService(r, 100*time.Second)))
		after(time.Second)
		if got := r.weightOf(rs3); got < 1 || got > 4 {
			t.Errorf("weight after the return: want about 1, got %d", got)
		}
		if got := r.weightOf(rs2); got != 100 {
			t.Errorf("weight of the other: want 100, got %d", got)
		}
	})
}
