package daemon

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/config"
)

func TestOneWillDo(t *testing.T) {
	t.Parallel()
	with := func(services int, edit func(*config.VirtualService)) *config.Config {
		c := large(&fakeNet{}, services) // ten real servers each, checked each second
		for i := range c.VirtualServices {
			edit(&c.VirtualServices[i])
		}
		return c
	}
	interval := func(d time.Duration) func(*config.VirtualService) {
		return func(vs *config.VirtualService) {
			for i := range vs.RealServers {
				vs.RealServers[i].Probes[0].Interval = d
			}
		}
	}
	for _, tt := range []struct {
		name string
		c    *config.Config
		want bool
	}{
		{"nothing", conf(), true},
		{"300 a second", with(30, interval(time.Second)), true},
		{"310 a second", with(31, interval(time.Second)), false},
		{"300 in two seconds", with(30, interval(2*time.Second)), true},
		{"600 a second when they turn", with(30, func(vs *config.VirtualService) {
			for i := range vs.RealServers {
				vs.RealServers[i].Probes[0].Fast = time.Second / 2
			}
		}), false},
		{"2,000 real servers", with(200, interval(time.Minute)), true},
		{"2,010 real servers", with(201, interval(time.Minute)), false},
		{"2,010 with those that stand by", with(200, func(vs *config.VirtualService) {
			interval(time.Minute)(vs)
			vs.Backup = vs.RealServers[:1]
		}), false},
	} {
		if got := oneWillDo(tt.c); got != tt.want {
			t.Errorf("%s: want %v, got %v", tt.name, tt.want, got)
		}
	}
}

// just returns a configuration that stays.
func just(c *config.Config) func() *config.Config { return func() *config.Config { return c } }

// A reload may come while the start settles: what counts is the configuration that
// runs in the end.
func TestProcessorsAtOnce(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	runtime.SetDefaultGOMAXPROCS()
	defer runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(0)
	few, many := large(&fakeNet{}, 1), large(&fakeNet{}, 201)
	p := newProcessors(0)
	for i := range 20 {
		var running atomic.Pointer[config.Config]
		running.Store(few)
		next, want := many, all
		if i%2 == 1 {
			running.Store(many)
			next, want = few, 1
		}
		var both sync.WaitGroup
		both.Go(func() { p.suit(running.Load) })
		both.Go(func() {
			running.Store(next)
			p.suit(running.Load)
		})
		both.Wait()
		if got := runtime.GOMAXPROCS(0); got != want {
			t.Fatalf("round %d: want %d, got %d", i, want, got)
		}
	}
}

// TestProcessors changes what is of the whole process, so that it runs alone.
func TestProcessors(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	runtime.SetDefaultGOMAXPROCS()
	defer runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(0)
	few, many := large(&fakeNet{}, 1), large(&fakeNet{}, 201)
	want := func(what string, n int) {
		t.Helper()
		if got := runtime.GOMAXPROCS(0); got != n {
			t.Errorf("%s: want %d, got %d", what, n, got)
		}
	}
	p := newProcessors(0)
	p.suit(just(few))
	want("few checks", 1)
	p.suit(just(many))
	want("many checks", all)
	p.suit(just(few))
	p.restore()
	want("in the end", all)

	runtime.GOMAXPROCS(3)
	p.suit(just(many))
	p.restore()
	want("where there is nothing to change", 3)
	newProcessors(1).suit(just(few))
	want("with threads of the engine", 3)
	t.Setenv("GOMAXPROCS", "3")
	newProcessors(0).suit(just(few))
	want("with a word of the environment", 3)
	newProcessors(0).restore()
}
