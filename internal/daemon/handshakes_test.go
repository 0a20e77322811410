package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/userspace"
	"github.com/lbd-project/lbd/ipvs"
)

// fakeHandshakes are clients that try each real server once a second, n times.
type fakeHandshakes struct {
	mu      sync.Mutex
	n       uint64
	servers []string
	// outcome is "answered" where there is nothing.
	outcome map[string]string
	watched []string
	watches int
	reads   int
	err     error
}

func (f *fakeHandshakes) WatchHandshakes(_ context.Context, services []ipvs.ServiceKey) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches++
	if f.err != nil {
		return f.err
	}
	f.watched = nil
	for _, k := range services {
		f.watched = append(f.watched, k.String())
	}
	return nil
}

func (f *fakeHandshakes) Handshakes() ([]userspace.Handshakes, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.err != nil {
		return nil, f.err
	}
	var list []userspace.Handshakes
	for _, addr := range f.servers {
		h := userspace.Handshakes{DestinationKey: dkey(vip, addr), Tried: f.n}
		switch f.outcome[addr] {
		case "":
			h.Answered = f.n
		case "reset":
			h.Reset = f.n
		case "unreachable":
			h.Unreachable = f.n
		}
		list = append(list, h)
	}
	return list, nil
}

func (f *fakeHandshakes) set(addr, outcome string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outcome[addr] = outcome
}

// only lets clients try these servers alone.
func (f *fakeHandshakes) only(servers ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers = servers
}

// seen returns what is watched, and how often that was set and read.
func (f *fakeHandshakes) seen() (watched []string, watches, reads int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watched, f.watches, f.reads
}

func (f *fakeHandshakes) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// passiveRig is a rig whose engine sees connections, and a service that goes by it.
func passiveRig(t *testing.T) (*rig, *fakeHandshakes, config.VirtualService) {
	r := newRig(t)
	f := &fakeHandshakes{n: 2, servers: []string{rs2, rs3}, outcome: map[string]string{}}
	r.name = config.EngineUserspace
	r.equip = func(o *opened) { o.handshakes = f }
	vs := service(vip, r.checked(rs2, 1), r.checked(rs3, 2))
	vs.Passive = config.Passive{
		Window: 10 * time.Second, Failures: 5, Ratio: 50, Hold: 30 * time.Second, MaxHold: time.Minute, MaxEjected: 50,
	}
	return r, f, vs
}

const (
	passiveIn  = "TCP 192.0.2.1:80 wlc: 10.0.0.2:80=1 10.0.0.3:80=2"
	passiveOut = "TCP 192.0.2.1:80 wlc: 10.0.0.2:80=1 10.0.0.3:80=0"
)

// A real server that does not answer leaves the rotation within the window, comes
// back, and leaves it for longer; log, events and explain tell why.
func TestPassive(t *testing.T) {
	t.Parallel()
	for outcome, within := range map[string]time.Duration{"silent": 7 * time.Second, "reset": 4 * time.Second, "unreachable": 4 * time.Second} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, f, vs := passiveRig(t)
				p := r.start(conf(vs))
				after(decided)
				r.wantTable(passiveIn)
				want := []string{"TCP 192.0.2.1:80"}
				if watched, _, _ := f.seen(); !slices.Equal(want, watched) {
					t.Errorf("watched: want %v, got %v", want, watched)
				}
				for _, hold := range []time.Duration{30 * time.Second, time.Minute, time.Minute} {
					f.set(rs3, outcome)
					for n := time.Duration(0); r.weightOf(rs3) > 0; n += time.Second {
						if n > within {
							t.Fatalf("still in after %v:\n%s", n, r.log)
						}
						after(time.Second)
					}
					f.set(rs3, "")
					f.only(rs2) // it gets none
					x, err := p.Explain(context.Background(), vs.Name)
					if err != nil {
						t.Fatal(err)
					}
					if want, got := "passive", x.RealServers[0].Chain[1].Step+x.RealServers[1].Chain[1].Step; !strings.Contains(got, want) {
						t.Errorf("explain: want a step %s, got %+v", want, x.RealServers)
					}
					after(hold - 2*time.Second)
					r.wantTable(passiveOut)
					after(3 * time.Second)
					r.wantTable(passiveIn)
					f.only(rs2, rs3)
					after(15 * time.Second)
					r.wantTable(passiveIn)
				}
				for _, want := range []string{`msg="real server ejected"`, "taken out for 30s: ", "taken out for 1m0s: ", `msg="real server up" service=web-192.0.2.1:80 real_server=10.0.0.3:80 weight=2`} {
					if !strings.Contains(r.log.String(), want) {
						t.Errorf("log: want %q in\n%s", want, r.log)
					}
				}
			})
		})
	}
}

// Nothing happens while all fail alike; who has a check that fails is down.
func TestPassiveAlike(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, f, vs := passiveRig(t)
		r.start(conf(vs))
		after(20 * time.Second)
		f.set(rs2, "silent")
		f.set(rs3, "silent")
		for range 60 {
			after(time.Second)
			r.wantTable(passiveIn)
		}
		f.set(rs2, "")
		after(12 * time.Second)
		r.wantTable(passiveOut)
		r.net.set(rs2, errRefused)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
	})
}

// An ejection survives a reload, unless that takes passive away; a restart ends it.
func TestPassiveReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, f, vs := passiveRig(t)
		p := r.start(conf(vs))
		f.set(rs3, "reset")
		after(8 * time.Second)
		r.wantTable(passiveOut)
		longer := vs
		longer.Passive.Window, longer.DrainTimeout = 20*time.Second, time.Minute
		if err := p.switchTo(conf(longer)); err != nil {
			t.Fatal(err)
		}
		r.wantTable(passiveOut)
		p.kill()
		f.set(rs3, "")
		p = r.start(conf(vs))
		after(time.Second)
		r.wantTable(passiveIn)
		f.set(rs3, "reset")
		after(8 * time.Second)
		r.wantTable(passiveOut)
		without := vs
		without.Passive = config.Passive{}
		if err := p.switchTo(conf(without)); err != nil {
			t.Fatal(err)
		}
		r.wantTable(passiveIn)
		_, _, before := f.seen()
		after(10 * time.Second)
		if watched, _, reads := f.seen(); reads != before || len(watched) != 0 {
			t.Errorf("without passive: %d readings more, watched %v", reads-before, watched)
		}
	})
}

// Who does without it asks the engine nothing; an engine that fails keeps the rest
// going, and is asked again.
func TestPassiveErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, f, vs := passiveRig(t)
		without := vs
		without.Passive = config.Passive{}
		p := r.start(conf(without))
		after(10 * time.Second)
		if _, watches, reads := f.seen(); watches+reads != 0 {
			t.Errorf("without passive: watched %d times, read %d times", watches, reads)
		}
		f.fail(errors.New("no luck"))
		if err := p.switchTo(conf(vs)); err == nil || !strings.Contains(err.Error(), "no luck") {
			t.Errorf("want no luck, got %v", err)
		}
		r.wantTable(passiveIn)
		f.fail(nil)
		f.set(rs3, "reset")
		after(10 * time.Second)
		r.wantTable(passiveOut)
		f.fail(errors.New("no luck at reading"))
		after(40 * time.Second)
		r.wantTable(passiveIn)
		if n := strings.Count(r.log.String(), "no luck at reading"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, r.log)
		}
	})
}

// Status counts who is out.
func TestPassiveStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, f, vs := passiveRig(t)
		p := r.start(conf(vs))
		f.set(rs3, "reset")
		after(8 * time.Second)
		_, servers := p.owner.view.Load().counts()
		if want := "{Total:2 Up:1 Down:0 Pending:0 Draining:0 Drained:0 Disabled:0 Standby:0 Ejected:1}"; fmt.Sprintf("%+v", servers) != want {
			t.Errorf("counts: want %s, got %+v", want, servers)
		}
	})
}
