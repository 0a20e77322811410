package oracle

import (
	"fmt"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// script is a pool that ends the test on an error or a difference.
type script struct {
	*pool
	t *testing.T
	n int
}

func newScript(t *testing.T, l *lab, kind sched.Overhead, name string, o sched.Options) *script {
	t.Helper()
	o.Overhead = kind
	if o.Now == nil {
		o.Now = clock()
	}
	s := setup{scheduler: name, options: o, family: ipvs.IPv4, mark: name == "lblcr", addresses: 1}
	return &script{pool: newTestPool(t, l, s), t: t}
}

func (s *script) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// servers adds servers, the first at the head of the list.
func (s *script) servers(configs ...sched.Config) {
	s.t.Helper()
	for i := len(configs) - 1; i >= 0; i-- {
		s.must(s.add(i, configs[i]))
	}
}

// picks opens n connections and returns the servers' numbers, "-" for a refusal.
func (s *script) picks(n int) (got string) {
	s.t.Helper()
	for range n {
		s.n++
		ok, err := s.open(s.client(s.n, 0))
		s.must(err)
		if ok {
			got += fmt.Sprint(s.active[len(s.active)-1].server)
		} else {
			got += "-"
		}
	}
	return got
}

// want is picks with a wish.
func (s *script) want(want string) {
	s.t.Helper()
	if got := s.picks(len(want)); got != want {
		s.t.Errorf("want picks %s, got %s", want, got)
	}
}

// gone ends the last n connections of a server for good.
func (s *script) gone(server, n int) {
	s.t.Helper()
	for i := len(s.active) - 1; i >= 0 && n > 0; i-- {
		if s.active[i].server == server {
			s.must(s.finish(i))
			n--
		}
	}
	s.must(s.expire(func(conn) bool { return true }))
}

// either returns what is right for the kernel.
func either[T any](kind sched.Overhead, total, inactive T) T {
	if kind == sched.OverheadTotal {
		return total
	}
	return inactive
}

// TestKernelOracleDirected walks through what random sequences meet too rarely.
// Every pick is compared as there, and most are worked out here too.
func TestKernelOracleDirected(t *testing.T) {
	netnstest.Require(t, "netns", "ipvs")
	loadCaches(t)
	kind := kernelOverhead(t)
	l := newTestLab(t)
	w := func(weight uint32) sched.Config { return sched.Config{Weight: weight} }
	limits := func(upper, lower uint32) sched.Config {
		return sched.Config{Weight: 1, Upper: upper, Lower: lower}
	}
	for _, tt := range []struct {
		name, scheduler string
		run             func(*script)
	}{
		{"formula", "wlc", func(s *script) {
			// One active at weight 256 ties with one inactive at weight 1 by the
			// older formula only.
			s.servers(w(0), w(1))
			s.want("1")
			s.must(s.finish(0))
			s.must(s.edit(0, w(256)))
			s.want("0")
			s.want(either(kind, "1", "0"))
		}},
		{"formula of lc", "lc", func(s *script) {
			// 257 inactive connections against one active.
			s.servers(w(1), w(0))
			s.picks(256)
			for len(s.active) > 0 {
				s.must(s.finish(0))
			}
			s.must(s.edit(1, w(1)))
			s.want("1")
			// 256 and 256 by the older formula: the first in the list.
			s.want(either(kind, "0", "0"))
			s.must(s.finish(len(s.active) - 1))
			// 257 inactive: more than 256, as many as 257.
			s.want(either(kind, "0", "1"))
		}},
		{"ties go to the newest", "wlc", func(s *script) {
			s.servers(w(1), w(1), w(1))
			s.want("012")
			s.must(s.remove(2))
			s.must(s.add(2, w(1)))
			s.want("201")
		}},
		{"overload 1", "rr", overload(1, 0)},
		{"overload 2", "rr", overload(2, 0)},
		{"overload 3", "rr", overload(3, 0)},
		{"overload 5", "rr", overload(5, 0)},
		{"overload 5 to 1", "rr", overload(5, 1)},
		{"overload 3 to 3", "rr", overload(3, 3)},
		{"thresholds under load", "rr", func(s *script) {
			s.servers(w(1))
			s.want("0000")
			// Below the load: the older kernel only looks when a connection begins.
			s.must(s.edit(0, limits(2, 0)))
			s.want(either(kind, "-", "0-"))
			s.must(s.edit(0, limits(9, 0))) // raised
			s.want("0")
			s.must(s.edit(0, limits(3, 0)))
			s.want(either(kind, "-", "0-"))
			s.must(s.edit(0, limits(0, 0))) // lifted
			s.want("00")
			s.must(s.edit(0, limits(20, 1)))
			s.must(s.remove(0))
			s.must(s.add(0, limits(4, 0)))
			s.picks(3)
			s.must(s.edit(0, limits(4, 4)))
			s.picks(3)
			s.must(s.edit(0, limits(3, 0)))
			s.picks(2)
		}},
		{"cursor of rr after deletes", "rr", func(s *script) {
			s.servers(w(1), w(1), w(1), w(1))
			s.want("01")
			s.must(s.remove(1)) // the cursor's own: the one before it is taken
			s.want("2")
			s.must(s.remove(3)) // the next one
			s.want("0")
			s.must(s.remove(0)) // the head
			s.want("22")
			s.must(s.add(3, w(1)))
			s.must(s.add(1, w(1)))
			s.want("132")
			s.must(s.remove(2)) // the tail
			s.want("13")
			s.must(s.remove(1))
			s.must(s.remove(3))
			s.want("-")
			s.must(s.add(0, w(0)))
			s.want("-")
			s.must(s.edit(0, w(1)))
			s.want("00")
		}},
		{"wrr after edits", "wrr", func(s *script) {
			s.servers(w(4), w(2), w(1))
			// The pass that began with the first server added goes on.
			s.want("0120001012")
			s.picks(3)
			s.must(s.edit(2, w(8)))
			s.picks(9)
			s.must(s.edit(2, w(6)))
			s.must(s.edit(0, w(0)))
			s.picks(9)
			s.must(s.remove(1))
			s.picks(7)
			s.must(s.edit(2, w(0)))
			s.want("-")
			s.must(s.edit(0, w(65535)))
			s.must(s.edit(2, w(65534)))
			s.picks(5)
			s.must(s.edit(0, sched.Config{Weight: 65535, Upper: 1}))
			s.picks(5)
			s.must(s.add(1, w(3)))
			s.picks(5)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lock(t)
			s := newScript(t, l, kind, tt.scheduler, sched.Options{})
			tt.run(s)
			s.must(s.check())
			t.Logf("%d picks equal, %d more refused by both", s.compared, s.refused)
		})
	}
	t.Run("sets of lblcr shrink", func(t *testing.T) {
		lock(t)
		testSets(t, l, kind)
	})
}

// overload takes a server up to its upper threshold and down again, one
// connection at a time, and tries it after each.
func overload(upper, lower uint32) func(*script) {
	return func(s *script) {
		s.servers(sched.Config{Weight: 1, Upper: upper, Lower: lower})
		free := lower
		if lower == 0 {
			free = upper - upper/4
		}
		for n := range upper {
			if got := s.picks(1); got != "0" {
				s.t.Errorf("refused with %d connections", n)
			}
		}
		s.want("-")
		for n := upper - 1; n+1 > 0; n-- {
			s.gone(0, 1)
			if n < free {
				s.want("0")
				break
			}
			s.want("-")
		}
	}
}

// testSets lets a set of lblcr grow, and waits until it shrinks: the most loaded
// server leaves it after the expiration time, which is made short.
func testSets(t *testing.T, l *lab, kind sched.Overhead) {
	const expiration = 2 * time.Second
	s := newScript(t, l, kind, "lblcr", sched.Options{Expiration: expiration})
	l.ns.SetSysctl("net.ipv4.vs.lblcr_expiration", "2")
	t.Cleanup(func() { l.ns.SetSysctl("net.ipv4.vs.lblcr_expiration", "86400") })
	w := func(weight uint32) sched.Config { return sched.Config{Weight: weight} }
	s.servers(w(2), w(2), w(3))
	s.want("000") // one server
	s.want("1")   // crowded, another has less than half: two
	s.want("11")  // its load is less
	s.want("2")   // crowded with three, and server 2 is idle
	s.picks(4)
	// The set has changed just now. Long after the expiration the next pick
	// takes the most loaded out, and later ones show it.
	for range 3 {
		time.Sleep(2 * expiration)
		s.picks(1)
		for len(s.active) > 0 {
			s.must(s.finish(0))
		}
		s.picks(4)
	}
	s.must(s.check())
	t.Logf("%d picks equal", s.compared)
}
