package daemon

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/ipvs"
)

// looks counts how often the whole table is read, but for the mirror's counts.
type looks struct {
	Engine
	n atomic.Int32
}

func (l *looks) Table(ctx context.Context) ([]ipvs.TableEntry, error) {
	l.n.Add(1)
	return l.Engine.Table(ctx)
}

// A failure is written without a look at the table, which may be large. It is
// looked at soon after, once for many failures, and what somebody else did
// meanwhile is repaired then.
func TestFailureWithoutALook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var l *looks
		r.wrap = func(e Engine) Engine { l = &looks{Engine: e}; return l }
		c := conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2)), service(vip2, r.checked(rs4, 1)))
		c.MirrorInterval, c.ReconcileInterval = time.Hour, time.Hour
		p := r.start(c)
		after(decided)
		wantLooks := func(when string, want int32) {
			t.Helper()
			if n := l.n.Swap(0); n != want {
				t.Errorf("looks at the table %s: want %d, got %d", when, want, n)
			}
		}
		l.n.Store(0)
		r.net.set(rs2, errRefused)
		after(decided / 2)
		r.net.set(rs4, errRefused)
		after(decided / 2)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2", "TCP 192.0.2.2:80 wlc: 10.0.0.4:80=0")
		wantLooks("of two failures", 0)
		stray := service(vip)
		d := server(rs3, 7).Destination
		if err := r.table.Do(ipvs.Op{Kind: ipvs.OpUpdateDestination, Service: stray.Service, Destination: d}); err != nil {
			t.Fatal(err)
		}
		after(lookAfter)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2", "TCP 192.0.2.2:80 wlc: 10.0.0.4:80=0")
		wantLooks("after them", 1)
		if n := p.mustStatus().Sync.Drift; n != 1 {
			t.Errorf("drift: want 1, got %d", n)
		}
		after(10 * lookAfter)
		wantLooks("later on", 0)
	})
}

// Where the table is not as it was left, or does not follow, a failure makes lbd
// look at once.
func TestFailureLooksAtOnce(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*rig) error{
		"deleted": func(r *rig) error {
			return r.table.Do(ipvs.Op{Kind: ipvs.OpDeleteDestination, Service: service(vip).Service, Destination: server(rs2, 3).Destination})
		},
		"cleared": func(r *rig) error { r.table.Clear(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				c := conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2)))
				c.ReconcileInterval = time.Hour
				p := r.start(c)
				after(decided)
				if err := change(r); err != nil {
					t.Fatal(err)
				}
				r.net.set(rs2, errRefused)
				after(decided)
				r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
				if st := p.mustStatus(); st.Sync.Drift == 0 || st.Sync.LastError != "" {
					t.Errorf("want drift and no error, got %+v", st.Sync)
				}
			})
		})
	}
}

// The weight of a server that may not have connections does not wait for a look at
// the host, either.
func TestWeightBeforeTheHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.host.readTime = time.Second
		c := conf(service(vip, server(rs2, 3), server(rs3, 2)))
		c.Sysctls = map[string]int{"expire_nodest_conn": 1}
		p := r.start(c)
		after(decided)
		p.owner.do(t.Context(), p.stopped, func(ctx context.Context) {
			var written time.Time
			r.table.SetHooks(hooks(func(ipvs.Op) { written = time.Now() }))
			p.owner.admin.all = fleet.Overrides{dkey(vip, rs2): {Mode: fleet.ModeDrain}}
			begun := time.Now()
			if _, err := p.owner.pass(ctx); err != nil {
				t.Error(err)
			}
			if !written.Equal(begun) {
				t.Errorf("want it written at once, got %v later", written.Sub(begun))
			}
		})
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
	})
}

// While one service is refused for good each pass looks, and the failures of others
// are written all the same.
func TestFailureBesideRefusedService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var l *looks
		r.wrap = func(e Engine) Engine { l = &looks{Engine: e}; return l }
		bad := service(vip2, server(rs4, 1))
		bad.Scheduler = "nosuch"
		c := conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2)), bad)
		c.MirrorInterval, c.ReconcileInterval = time.Hour, time.Hour
		p := r.start(c)
		after(decided)
		l.n.Store(0)
		passes := p.mustStatus().Sync.Passes
		r.net.set(rs2, errRefused)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		st := p.mustStatus()
		if st.Sync.LastError == "" {
			t.Errorf("want the error of the refused service, got %+v", st.Sync)
		}
		if want, got := int32(st.Sync.Passes-passes), l.n.Load(); want == 0 || got != want {
			t.Errorf("looks at the table: want %d, as many as passes, got %d", want, got)
		}
	})
}

// A failure that changes nothing in the table is told at once.
func TestFailureWithoutAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf(service(vip, r.checked(rs2, 0), r.checked(rs3, 2)))
		c.ReconcileInterval = time.Hour
		p := r.start(c)
		after(decided)
		seen, _ := p.Events(0)
		r.net.set(rs2, errRefused)
		after(decided)
		events, _ := p.Events(seen[len(seen)-1].Seq)
		if len(events) != 1 || events[0].State != "down" || events[0].RealServer != rs2 {
			t.Errorf("want the failure of %s, got %+v", rs2, events)
		}
	})
}

// slowly takes a time for each write, and three times as long for each reading of
// counts.
type slowly struct {
	Engine
	takes          time.Duration
	writes, counts atomic.Int32
}

func (s *slowly) Apply(ctx context.Context, ops []ipvs.Op) error {
	s.writes.Add(1)
	time.Sleep(s.takes)
	return s.Engine.Apply(ctx, ops)
}

func (s *slowly) Counts(ctx context.Context) ([]ipvs.DestinationCounts, error) {
	s.counts.Add(1)
	time.Sleep(3 * s.takes)
	return s.Engine.Counts(ctx)
}

// In a storm of transitions lbd rests as long as it works, answers all the same, and
// ends up right.
func TestStormOfTransitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var s *slowly
		r.wrap = func(e Engine) Engine { s = &slowly{Engine: e, takes: 20 * time.Millisecond}; return s }
		c := conf(service(vip, server(rs2, 3), server(rs3, 2)))
		p := r.start(c)
		after(decided)
		s.writes.Store(0)
		s.counts.Store(0)
		// The storm is of decisions: which server is down changes each millisecond.
		k := dkey(vip, rs2)
		const storm = 4 * time.Second
		change := func(m fleet.Mode) {
			begun := time.Now()
			p.owner.do(t.Context(), p.stopped, func(context.Context) { p.owner.admin.all = fleet.Overrides{k: {Mode: m}} })
			if took := time.Since(begun); took > s.takes {
				t.Errorf("a request took %v, longer than a pass", took)
			}
			signal(p.owner.dirty)
		}
		for n, begun := 0, time.Now(); time.Since(begun) < storm; n++ {
			change([]fleet.Mode{fleet.ModeNone, fleet.ModeDrain}[n%2])
			time.Sleep(time.Millisecond)
		}
		change(fleet.ModeDrain)
		if n, most := s.writes.Load(), int32(storm/(2*s.takes)); n > most || n < most/4 {
			t.Errorf("writes in a storm of %v: want %d at most, got %d", storm, most, n)
		}
		if n, most := s.counts.Load(), int32(storm/(6*s.takes))+2; n > most {
			t.Errorf("readings of counts: want %d at most, got %d", most, n)
		}
		after(time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
	})
}
