package sched

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestOverload walks a server up to its upper threshold and down again, with the
// default lower one and with given ones.
func TestOverload(t *testing.T) {
	for _, o := range []Overhead{OverheadTotal, OverheadInactive} {
		for _, tt := range []struct {
			upper, lower uint32
			// free is the number of connections at which it gets new ones again.
			free uint32
		}{
			{1, 0, 0}, {2, 0, 1}, {3, 0, 2}, {4, 0, 2}, {5, 0, 3}, {8, 0, 5},
			{5, 2, 1}, {5, 5, 4}, {5, 1, 0},
		} {
			t.Run(fmt.Sprintf("%v/%d/%d", o, tt.upper, tt.lower), func(t *testing.T) {
				f := newFleet(t, "rr", Options{Overhead: o}, Config{Weight: 1, Upper: tt.upper, Lower: tt.lower})
				s := f.servers[0]
				for i := range tt.upper {
					if s.Overloaded() || !f.Available(s) {
						t.Fatalf("overloaded with %d connections", i)
					}
					// Inactive ones count too.
					f.Pick(nil, Active-State(i%2))
				}
				if !s.Overloaded() || f.Available(s) || f.Pick(nil, Active) != nil {
					t.Fatalf("not overloaded with %d connections", tt.upper)
				}
				for n := tt.upper; n > 0; n-- {
					from := Active
					if s.Active() == 0 {
						from = Inactive
					}
					f.Count(s, from, Uncounted)
					if want, got := n-1 > tt.free, s.Overloaded(); want != got {
						t.Errorf("with %d connections: want overloaded %v, got %v", n-1, want, got)
					}
				}
			})
		}
	}
}

// TestOverloadEdit edits thresholds under load, where the kernels differ.
func TestOverloadEdit(t *testing.T) {
	type edit struct {
		config Config
		want   map[Overhead]bool
	}
	both := func(v bool) map[Overhead]bool {
		return map[Overhead]bool{OverheadTotal: v, OverheadInactive: v}
	}
	edits := []edit{
		{Config{Weight: 1}, both(false)},
		// Below the load of 4: the older kernel does not look.
		{Config{Weight: 1, Upper: 2}, map[Overhead]bool{OverheadTotal: true, OverheadInactive: false}},
		{Config{Weight: 1, Upper: 4}, map[Overhead]bool{OverheadTotal: true, OverheadInactive: false}},
		{Config{Weight: 1, Upper: 9}, both(false)},
		{Config{Weight: 1, Upper: 3}, map[Overhead]bool{OverheadTotal: true, OverheadInactive: false}},
		{Config{Weight: 1}, both(false)},
	}
	for _, o := range []Overhead{OverheadTotal, OverheadInactive} {
		f := newFleet(t, "rr", Options{Overhead: o}, Config{Weight: 1})
		s := f.servers[0]
		f.hold(s, 4)
		for _, e := range edits {
			f.Update(s, e.config)
			if want, got := e.want[o], s.Overloaded(); want != got {
				t.Errorf("%v, 4 connections, %+v: want overloaded %v, got %v", o, e.config, want, got)
			}
		}
		// Set by a connection, a raised threshold frees it: at 5 of 6 the older
		// kernel forgets, the newer keeps what lies between the thresholds.
		f.Update(s, Config{Weight: 1, Upper: 5})
		f.hold(s, 1)
		if !s.Overloaded() {
			t.Fatalf("%v: 5 of 5 is not overloaded", o)
		}
		f.Update(s, Config{Weight: 1, Upper: 6})
		if want, got := o == OverheadTotal, s.Overloaded(); want != got {
			t.Errorf("%v, 5 connections, 5 raised to 6: want overloaded %v, got %v", o, want, got)
		}
	}
}

func TestCountHolds(t *testing.T) {
	f := newFleet(t, "lc", Options{}, weights(1)...)
	s := f.servers[0]
	f.Count(s, Uncounted, Active)
	for i, tt := range []struct {
		from, to         State
		ok               bool
		active, inactive uint32
	}{
		{Active, Inactive, true, 0, 1},
		{Inactive, Inactive, true, 0, 1},
		{Active, Uncounted, false, 0, 1},
		// The move is taken though nothing was left to move from.
		{Active, Inactive, false, 0, 2},
		{Inactive, Active, true, 1, 1},
		{Inactive, Uncounted, true, 1, 0},
		{Inactive, Uncounted, false, 1, 0},
		{Active, Uncounted, true, 0, 0},
		{Active, Uncounted, false, 0, 0},
		{Uncounted, Uncounted, true, 0, 0},
	} {
		ok := f.Count(s, tt.from, tt.to)
		if ok != tt.ok || s.Active() != tt.active || s.Inactive() != tt.inactive {
			t.Errorf("step %d, %v to %v: want %v %d/%d, got %v %d/%d", i, tt.from, tt.to,
				tt.ok, tt.active, tt.inactive, ok, s.Active(), s.Inactive())
		}
	}
	if !f.Persist(s, 2) || !f.Persist(s, -1) || s.Persistent() != 1 || f.Persist(s, -2) || s.Persistent() != 0 {
		t.Errorf("templates are not held at 0: %d", s.Persistent())
	}
	if !f.Request(s, 2) || !f.Request(s, -1) || s.Busy() != 1 || f.Request(s, -2) || s.Busy() != 0 {
		t.Errorf("requests are not held at 0: %d", s.Busy())
	}
}

// TestCountUncounted has one-packet picks leave no trace.
func TestCountUncounted(t *testing.T) {
	f := newFleet(t, "rr", Options{}, Config{Weight: 1, Upper: 1}, Config{Weight: 1})
	if want, got := "ABABAB", f.picks(6, Uncounted); want != got {
		t.Errorf("want %s, got %s", want, got)
	}
	if n := f.servers[0].connections() + f.servers[1].connections(); n != 0 {
		t.Errorf("want no connections, got %d", n)
	}
}

// TestRemovedCounts has a removed server counted on, and come back with what it
// has.
func TestRemovedCounts(t *testing.T) {
	for _, i := range Schedulers() {
		t.Run(i.Name, func(t *testing.T) {
			f := newFleet(t, i.Name, Options{}, Config{Weight: 1, Upper: 3}, Config{Weight: 1})
			a := f.servers[0]
			f.hold(a, 3)
			f.Remove(a)
			if f.Available(a) {
				t.Error("a removed server is available")
			}
			for range 3 {
				if s := f.Pick(&Packet{}, Active); s == a {
					t.Fatal("a removed server was chosen")
				}
				f.Count(a, Active, Inactive)
			}
			f.Insert(a)
			if a.Active() != 0 || a.Inactive() != 3 || !a.Overloaded() || f.Available(a) {
				t.Errorf("want 0/3 and overloaded, got %d/%d, %v", a.Active(), a.Inactive(), a.Overloaded())
			}
			f.Remove(a)
			for range 3 {
				f.Count(a, Inactive, Uncounted)
			}
			f.Insert(a)
			if !f.Available(a) {
				t.Error("an empty server that came back is not available")
			}
		})
	}
}

// TestBegin counts connections in one step and one by one, and gets the same table,
// with every scheduler: servers that are listed before or after, and thresholds.
func TestBegin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		info := rapid.SampledFrom(Schedulers()).Draw(t, "scheduler")
		o := Options{Overhead: Overhead(rapid.IntRange(0, 1).Draw(t, "overhead"))}
		var tables [2]*Table
		for i := range tables {
			o.Rand, o.Now = rand.NewPCG(1, 2), func() time.Duration { return time.Minute }
			var err error
			if tables[i], err = New(info.Name, o); err != nil {
				t.Fatal(err)
			}
		}
		for i := range rapid.IntRange(1, 5).Draw(t, "servers") {
			c := Config{Weight: uint32(rapid.IntRange(0, 3).Draw(t, "weight")), Upper: uint32(rapid.IntRange(0, 9).Draw(t, "upper"))}
			listed := rapid.Bool().Draw(t, "listed first")
			active, inactive := rapid.Uint32Range(0, 12).Draw(t, "active"), rapid.Uint32Range(0, 12).Draw(t, "inactive")
			for n, table := range tables {
				s := testServer(i, c)
				if listed {
					table.Insert(s)
				}
				if n == 0 {
					table.Begin(s, Active, active)
					table.Begin(s, Inactive, inactive)
				} else {
					for range active {
						table.Count(s, Uncounted, Active)
					}
					for range inactive {
						table.Count(s, Uncounted, Inactive)
					}
				}
				table.Insert(s)
			}
		}
		if diff := cmp.Diff(tables[1].Standings(), tables[0].Standings(), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Fatalf("standings (-one by one +in one step):\n%s", diff)
		}
		for n := range 20 {
			p := &Packet{Src: netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), SrcPort: uint16(n)}
			if one, all := tables[1].Pick(p, Active), tables[0].Pick(p, Active); call(one) != call(all) {
				t.Fatalf("pick %d: one by one %s, in one step %s", n, call(one), call(all))
			}
		}
	})
}
