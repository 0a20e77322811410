package daemon

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// hanging is an engine that does not answer while it hangs.
type hanging struct {
	Engine
	hangs *atomic.Bool
}

func (h hanging) wait(ctx context.Context) error {
	if !h.hangs.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h hanging) Table(ctx context.Context) ([]ipvs.TableEntry, error) {
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.Engine.Table(ctx)
}

func (h hanging) Counts(ctx context.Context) ([]ipvs.DestinationCounts, error) {
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.Engine.Counts(ctx)
}

func (h hanging) Apply(ctx context.Context, ops []ipvs.Op) error {
	if err := h.wait(ctx); err != nil {
		return err
	}
	return h.Engine.Apply(ctx, ops)
}

// F10, H3: a kernel that does not answer holds up nobody who asks lbd, shows in
// the age of the last success, and is followed again when it does (merlin
// c1ea830, kube-router#78).
func TestHungEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var hangs atomic.Bool
		r.wrap = func(e Engine) Engine { return hanging{e, &hangs} }
		p := r.start(conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2))))
		after(decided)
		hangs.Store(true)
		r.net.set(rs2, errRefused)
		for range 5 {
			after(time.Minute)
			asked := time.Now()
			p.mustStatus()
			if _, err := p.Services(t.Context()); err != nil || time.Since(asked) > 0 {
				t.Errorf("services: want them at once, got %v after %v", err, time.Since(asked))
			}
		}
		st := p.mustStatus()
		if st.Sync.AgeSeconds < 270 || !strings.Contains(st.Sync.LastError, "deadline exceeded") {
			t.Errorf("sync: want the age of the hang and its error, got %+v", st.Sync)
		}
		if st.Mirror.CountsAgeSeconds < 270 || st.Mirror.LastError == "" {
			t.Errorf("mirror: want the age of the hang and an error, got %+v", st.Mirror)
		}
		if who := p.stuck(time.Now(), time.Minute); who != "" {
			t.Errorf("watchdog: want no alarm, as restarting would not help, got %s", who)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2")
		hangs.Store(false)
		after(passTimeout + retryMax)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		if st := p.mustStatus(); st.Sync.LastError != "" || st.Sync.AgeSeconds > 60 {
			t.Errorf("sync after the hang: want success, got %+v", st.Sync)
		}
	})
}

// A26: the log says that a real server is down, up or has another weight when
// the kernel has taken it, and not before (keepalived 4127af50).
func TestLogFollowsKernel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		refuse := func(yes bool) {
			var f ipvstest.Faults
			if yes {
				f = ipvstest.Faults{Rate: 1, Rand: rand.New(rand.NewPCG(1, 1))}
			}
			r.table.SetFaults(f)
		}
		weight := func(w uint32) *config.Config { return conf(service(vip, r.checked(rs2, w), r.checked(rs3, 2))) }
		p := r.start(weight(3))
		after(decided)
		said := func(what string) bool {
			return strings.Contains(r.log.String(), `msg="real server `+what) && strings.Contains(r.log.String(), "real_server="+rs2)
		}
		refuse(true)
		r.net.set(rs2, errRefused)
		after(time.Minute)
		if said("down") {
			t.Errorf("the log says down, and the table has\n%s", r.tableText())
		}
		refuse(false)
		after(retryMax)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		if !said("down") {
			t.Errorf("the log does not say down:\n%s", r.log)
		}

		refuse(true)
		r.net.set(rs2, nil)
		if err := p.switchTo(weight(9)); err == nil {
			after(decided)
		}
		after(time.Minute)
		if strings.Contains(r.log.String(), "weight=9") {
			t.Errorf("the log says weight 9, and the table has\n%s", r.tableText())
		}
		refuse(false)
		after(retryMax)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=9 10.0.0.3:80=2")
		if !strings.Contains(r.log.String(), "weight=9") {
			t.Errorf("the log does not say weight 9:\n%s", r.log)
		}
	})
}
