package sched

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// wall is a clock that tests move.
type wall struct{ now time.Duration }

func (w *wall) options() Options { return Options{Now: func() time.Duration { return w.now }} }

// to returns a packet to the nth virtual address.
func to(n int) *Packet {
	return &Packet{Dst: netip.AddrFrom4([4]byte{198, byte(n >> 16), byte(n >> 8), byte(n)})}
}

// TestLocalityStays keeps the connections of an address together though wlc
// would spread them, until the server is crowded while another one is idle.
func TestLocalityStays(t *testing.T) {
	for _, name := range []string{"lblc", "lblcr"} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, name, Options{}, weights(3, 3)...)
			a, b := f.servers[0], f.servers[1]
			// The fourth is let in with 3 active of weight 3; before the fifth A has 4,
			// and B less than half of 3.
			for i, want := range []string{"A", "A", "A", "A", "B", "B"} {
				if got := call(f.Pick(to(1), Active)); got != want {
					t.Errorf("connection %d: want %s, got %s", i, want, got)
				}
			}
			// Another address begins with the least loaded server.
			if got := call(f.Pick(to(2), Active)); got != "B" {
				t.Errorf("another address: want B, got %s", got)
			}
			if a.Active() != 4 || b.Active() != 3 {
				t.Errorf("active %v, want 4 and 3", f.active())
			}
		})
	}
}

// TestLocalityCrowded pins the limits: more active connections than the weight,
// and less than half of the weight.
func TestLocalityCrowded(t *testing.T) {
	for _, tt := range []struct {
		a, b, weight int
		want         string
	}{
		{3, 0, 3, "A"},
		{4, 0, 3, "B"},
		{4, 1, 3, "B"},
		{4, 2, 3, "A"},
		{5, 2, 4, "A"}, // twice 2 is not less than 4
		{5, 1, 4, "B"},
	} {
		f := newFleet(t, "lblc", Options{}, weights(uint32(tt.weight), uint32(tt.weight))...)
		if got := call(f.Pick(to(1), Uncounted)); got != "A" {
			t.Fatalf("first: want A, got %s", got)
		}
		f.hold(f.servers[0], tt.a)
		f.hold(f.servers[1], tt.b)
		if got := call(f.Pick(to(1), Uncounted)); got != tt.want {
			t.Errorf("%d and %d active at weight %d: want %s, got %s", tt.a, tt.b, tt.weight, tt.want, got)
		}
	}
}

// TestLocalityUnavailable: a server at weight 0 or out of the table is left; one
// over its upper threshold is kept by lblc, as in the kernel, and left by lblcr.
func TestLocalityUnavailable(t *testing.T) {
	for _, name := range []string{"lblc", "lblcr"} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, name, Options{}, weights(9, 9)...)
			pick := func(want string) {
				t.Helper()
				if got := call(f.Pick(to(1), Uncounted)); got != want {
					t.Errorf("want %s, got %s", want, got)
				}
			}
			pick("A")
			f.hold(f.servers[0], 2)
			f.Update(f.servers[0], Config{Weight: 9, Upper: 2})
			if !f.servers[0].Overloaded() {
				t.Fatal("A is not overloaded")
			}
			if name == "lblc" {
				pick("A")
			} else {
				pick("B")
			}
			f.Update(f.servers[0], Config{})
			pick("B")
			f.Update(f.servers[0], Config{Weight: 9})
			f.Remove(f.servers[1])
			pick("A")
			f.Remove(f.servers[0])
			pick("-")
			// It is remembered, and comes back with its connections.
			f.Insert(f.servers[1])
			f.Insert(f.servers[0])
			pick(map[string]string{"lblc": "A", "lblcr": "B"}[name])
		})
	}
}

// TestLocalityPeek: Peek tells the next pick and leaves no trace.
func TestLocalityPeek(t *testing.T) {
	for _, name := range []string{"lblc", "lblcr"} {
		rapid.Check(t, func(rt *rapid.T) {
			w := &wall{}
			f := newFleet(t, name, w.options(), weights(2, 1, 3)...)
			twin := newFleet(t, name, w.options(), weights(2, 1, 3)...)
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				i := rapid.IntRange(0, 2).Draw(rt, "server")
				switch rapid.IntRange(0, 6).Draw(rt, "what") {
				case 0:
					f.Count(f.servers[i], Active, Uncounted)
					twin.Count(twin.servers[i], Active, Uncounted)
				case 1:
					w.now += time.Duration(rapid.IntRange(0, 2000).Draw(rt, "minutes")) * time.Minute
				case 2:
					c := Config{Weight: uint32(i)}
					f.Update(f.servers[2-i], c)
					twin.Update(twin.servers[2-i], c)
				default:
					p := to(rapid.IntRange(0, 4).Draw(rt, "address"))
					peek := call(f.Peek(p))
					f.Peek(to(9))
					if got := call(f.Pick(p, Active)); got != peek {
						rt.Fatalf("Peek said %s, Pick %s", peek, got)
					}
					if got := call(twin.Pick(p, Active)); got != peek {
						rt.Fatalf("with Peek %s, without %s", peek, got)
					}
				}
			}
		})
	}
}

// entries returns what the table remembers.
func (f *fleet) locality() *locality {
	switch s := f.sched.(type) {
	case *lblc:
		return s.locality
	case *lblcr:
		return s.locality
	}
	f.t.Fatal("no cache")
	return nil
}

// TestLocalityExpires: the check after thirty minutes drops what was not used for
// a day, and nothing else does while the cache is not too large.
func TestLocalityExpires(t *testing.T) {
	for _, name := range []string{"lblc", "lblcr"} {
		t.Run(name, func(t *testing.T) {
			w := &wall{}
			f := newFleet(t, name, w.options(), weights(5, 5)...)
			f.Pick(to(1), Uncounted)
			f.Pick(to(2), Uncounted)
			l := f.locality()
			check := func(want int) {
				t.Helper()
				f.Peek(to(9))
				if got := len(l.index); got != want {
					t.Errorf("after %v: want %d entries, got %d", w.now, want, got)
				}
			}
			w.now = 23 * time.Hour
			f.Pick(to(2), Uncounted)
			w.now = 24*time.Hour - time.Nanosecond
			check(2)
			w.now = 24 * time.Hour // the forty-eighth full check
			check(1)
			w.now = 47*time.Hour - time.Nanosecond
			check(1)
			w.now = 47 * time.Hour
			check(0)
		})
	}
}

// TestLocalityExpiration: another expiration time counts.
func TestLocalityExpiration(t *testing.T) {
	w := &wall{}
	o := w.options()
	o.Expiration = time.Hour
	f := newFleet(t, "lblc", o, weights(5)...)
	f.Pick(to(1), Uncounted)
	for _, tt := range []struct {
		at   time.Duration
		want int
	}{{time.Hour - 1, 1}, {time.Hour, 0}} {
		w.now = tt.at
		f.Peek(to(9))
		if got := len(f.locality().index); got != tt.want {
			t.Errorf("after %v: want %d entries, got %d", w.now, tt.want, got)
		}
	}
}

// TestLocalitySizes fills the cache: 24,576 addresses at most; from 16,384 on
// what was idle for six minutes goes, a third more than there are too many.
func TestLocalitySizes(t *testing.T) {
	for _, name := range []string{"lblc", "lblcr"} {
		t.Run(name, func(t *testing.T) {
			w := &wall{}
			f := newFleet(t, name, w.options(), weights(5, 5)...)
			for n := range localityFull + 100 {
				if f.Pick(to(n), Uncounted) == nil {
					t.Fatalf("address %d has no server", n)
				}
			}
			l := f.locality()
			size := func(at time.Duration, low, high int) {
				t.Helper()
				w.now = at
				f.Peek(to(1 << 20))
				if got := len(l.index); got < low || got > high {
					t.Errorf("after %v: want %d to %d entries, got %d", at, low, high, got)
				}
			}
			size(0, localityFull, localityFull)
			size(6*time.Minute-1, localityFull, localityFull)
			// 8192 too many: 8192, half of 16384, go; a bucket is emptied as a whole.
			size(6*time.Minute, localityMax-64, localityMax)
			// No check drops more while the size is right.
			size(25*time.Minute, localityMax-64, localityMax)
			for n := range 1000 {
				f.Pick(to(1<<18+n), Uncounted)
			}
			excess := len(l.index) - localityMax
			size(26*time.Minute, localityMax-excess/3-64, localityMax-excess/3)

			entries, members := len(l.entries), len(l.members)
			if entries != localityFull || members != localityFull {
				t.Errorf("%d entries and %d members were made, want %d", entries, members, localityFull)
			}
		})
	}
}

// TestLocalitySet grows a set of lblcr, serves from its least loaded server, and
// takes the most loaded one out when the set has not changed for a day.
func TestLocalitySet(t *testing.T) {
	w := &wall{}
	f := newFleet(t, "lblcr", w.options(), weights(2, 2, 2)...)
	a, b, c := f.servers[0], f.servers[1], f.servers[2]
	pick := func(want string) {
		t.Helper()
		if got := call(f.Pick(to(1), Uncounted)); got != want {
			t.Errorf("want %s, got %s", want, got)
		}
	}
	set := func(want string) {
		t.Helper()
		l := f.locality()
		got := ""
		e := l.find(to(1).Dst)
		for m := e.set; m != 0; m = l.members[m-1].next {
			got += call(l.members[m-1].server)
		}
		if got != want || int(e.size) != len(got) {
			t.Errorf("set: want %s, got %s of %d", want, got, e.size)
		}
	}
	pick("A")
	set("A")
	f.hold(a, 3)
	pick("B") // A is crowded, B is the first of the idle ones
	set("BA")
	f.hold(b, 2)
	pick("B") // not crowded: 2 of 2
	f.hold(c, 5)
	f.hold(b, 2) // 3, 4, 5 active: all crowded, nobody idle
	pick("A")    // the least loaded of the set
	w.now = 12 * time.Hour
	pick("A")
	w.now = 24 * time.Hour
	pick("A")
	set("BA")
	w.now++
	pick("A") // chosen before B, the most loaded, is taken out
	set("A")
	w.now += 12 * time.Hour
	pick("A")
	w.now += 12*time.Hour + 1
	pick("A")
	set("A") // one stays

	// A removed server counts as the most loaded one, and its weight is what it had.
	f.end(c, 5)
	pick("C")
	set("CA")
	f.Remove(a)
	f.hold(c, 1)
	w.now += 12 * time.Hour
	pick("C")
	w.now += 12*time.Hour + 1
	pick("C")
	set("C")
}

// TestLocalityAllocations: nothing is allocated once the cache is full, whatever
// comes and goes.
func TestLocalityAllocations(t *testing.T) {
	for _, name := range []string{"lblc", "lblcr"} {
		w := &wall{}
		f := newFleet(t, name, w.options(), weights(5, 5, 5)...)
		n := 0
		p := to(0)
		step := func() {
			n++
			w.now += time.Second
			p.Dst = netip.AddrFrom4([4]byte{198, byte(n >> 16), byte(n >> 8), byte(n)})
			s := f.Pick(p, Active)
			f.Count(f.servers[n%3], Active, Uncounted)
			if s == nil {
				t.Fatal("no server")
			}
		}
		for range 3 * localityFull {
			step()
		}
		if got := testing.AllocsPerRun(2*localityFull, step); got != 0 {
			t.Errorf("%s: %v allocations a pick, want 0", name, got)
		}
	}
}

// TestLocalityModel compares lblc and lblcr with the plainest version of
// themselves, without sizes and expiry of entries.
func TestLocalityModel(t *testing.T) {
	for _, name := range []string{"lblc", "lblcr"} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				w := &wall{}
				f := newFleet(t, name, w.options(), weights(1, 2, 3, 4)...)
				sets := map[netip.Addr][]*Server{}
				for range rapid.IntRange(1, 80).Draw(rt, "steps") {
					s := f.servers[rapid.IntRange(0, 3).Draw(rt, "server")]
					switch rapid.IntRange(0, 7).Draw(rt, "what") {
					case 0:
						f.Count(s, Active, Inactive)
					case 1:
						f.Update(s, Config{Weight: rapid.Uint32Range(0, 3).Draw(rt, "weight"), Upper: rapid.Uint32Range(0, 5).Draw(rt, "upper")})
					case 2:
						f.Remove(s)
					case 3:
						f.Insert(s)
					default:
						p := to(rapid.IntRange(0, 3).Draw(rt, "address"))
						want := plainLocality(f, sets, p.Dst, name == "lblcr")
						if got := f.Pick(p, Active); got != want {
							rt.Fatalf("want %s, got %s", call(want), call(got))
						}
					}
				}
			})
		})
	}
}

// plainLocality is the definition at the head of ip_vs_lblc.c and ip_vs_lblcr.c,
// with sets newest first.
func plainLocality(f *fleet, sets map[netip.Addr][]*Server, dst netip.Addr, replicate bool) *Server {
	least := func(of []*Server) *Server {
		var least *Server
		for _, s := range of {
			if !f.Available(s) {
				continue
			}
			if least == nil || f.overhead(least)*uint64(s.weight) > f.overhead(s)*uint64(least.weight) {
				least = s
			}
		}
		return least
	}
	var all []*Server
	idle := false
	for s := range f.Servers() {
		all = append(all, s)
		idle = idle || 2*s.active < s.weight
	}
	var s *Server
	switch set := sets[dst]; {
	case replicate:
		s = least(set)
	case len(set) > 0 && set[0].table == f.Table && set[0].weight > 0:
		s = set[0]
	}
	if s != nil && (s.active <= s.weight || !idle) {
		return s
	}
	if s = least(all); s == nil {
		return nil
	}
	if !replicate {
		sets[dst] = []*Server{s}
		return s
	}
	for _, m := range sets[dst] {
		if m == s {
			return s
		}
	}
	sets[dst] = append([]*Server{s}, sets[dst]...)
	return s
}
