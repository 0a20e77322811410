package sched

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fleet is a table whose servers are called A, B, C … in list order.
type fleet struct {
	*Table
	t       *testing.T
	servers []*Server
}

// newFleet makes a table with one server a config, the first at the head. The
// clock stands still unless o brings another.
func newFleet(t *testing.T, name string, o Options, configs ...Config) *fleet {
	t.Helper()
	if o.Rand == nil {
		o.Rand = rand.NewPCG(1, 2)
	}
	if o.Now == nil {
		o.Now = func() time.Duration { return 0 }
	}
	table, err := New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{Table: table, t: t, servers: make([]*Server, len(configs))}
	// The kernel puts new ones at the head.
	for i := len(configs) - 1; i >= 0; i-- {
		f.servers[i] = testServer(i, configs[i])
		f.Insert(f.servers[i])
	}
	return f
}

func testServer(i int, c Config) *Server {
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
	return NewServer(uint32(i), addr, c)
}

// weights returns configs without thresholds.
func weights(w ...uint32) []Config {
	var c []Config
	for _, w := range w {
		c = append(c, Config{Weight: w})
	}
	return c
}

// call names a server; nil is "-".
func call(s *Server) string {
	if s == nil {
		return "-"
	}
	return string(rune('A' + s.ID()))
}

// picks makes n picks and names them.
func (f *fleet) picks(n int, st State) string {
	var b strings.Builder
	for range n {
		b.WriteString(call(f.Pick(nil, st)))
	}
	return b.String()
}

// shorts makes n picks each of which ends before the next.
func (f *fleet) shorts(n int) string {
	f.t.Helper()
	var b strings.Builder
	for range n {
		s := f.Pick(nil, Active)
		b.WriteString(call(s))
		f.end(s, 1)
	}
	return b.String()
}

// hold gives s n more active connections that no pick made.
func (f *fleet) hold(s *Server, n int) {
	for range n {
		f.Count(s, Uncounted, Active)
	}
}

// end takes n active connections from s.
func (f *fleet) end(s *Server, n int) {
	f.t.Helper()
	for range n {
		if !f.Count(s, Active, Uncounted) {
			f.t.Fatalf("%s has no active connection to end", call(s))
		}
	}
}

// active returns the active connections in list order of the beginning.
func (f *fleet) active() []uint32 {
	var n []uint32
	for _, s := range f.servers {
		n = append(n, s.Active())
	}
	return n
}

// order names the servers in list order.
func (f *fleet) order() string {
	var b strings.Builder
	for s := range f.Servers() {
		b.WriteString(call(s))
	}
	return b.String()
}

func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, sched string
		opt         Options
		want        error
	}{
		{"unknown", "wlcc", Options{}, ErrUnknown},
		{"none", "", Options{}, ErrUnknown},
		{"ties of rr", "rr", Options{Ties: TiesRoundRobin}, ErrOption},
		{"unknown ties", "wlc", Options{Ties: 3}, ErrOption},
		{"unknown overhead", "wlc", Options{Overhead: 2}, ErrOption},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, err := New(tt.sched, tt.opt)
			if table != nil || !errors.Is(err, tt.want) {
				t.Errorf("want no table and %v, got %v, %v", tt.want, table, err)
			}
		})
	}
}

func TestNewKnowsSchedulers(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range Schedulers() {
		if seen[i.Name] || i.Summary == "" {
			t.Errorf("%s: listed twice, or without a summary", i.Name)
		}
		seen[i.Name] = true
		f := newFleet(t, i.Name, Options{})
		if s := f.Pick(&Packet{}, Active); s != nil {
			t.Errorf("%s chose %s of an empty table", i.Name, call(s))
		}
	}
}

func TestInsertAtHead(t *testing.T) {
	f := newFleet(t, "rr", Options{}, weights(1, 1, 1)...)
	if want, got := "ABC", f.order(); want != got {
		t.Errorf("want list %s, got %s", want, got)
	}
	f.Remove(f.servers[1])
	f.Remove(f.servers[1])
	f.Insert(f.servers[1])
	f.Insert(f.servers[1])
	if want, got := "BAC", f.order(); want != got || f.Len() != 3 {
		t.Errorf("want list %s of 3, got %s of %d", want, got, f.Len())
	}
}

func TestResetKeepsServers(t *testing.T) {
	f := newFleet(t, "rr", Options{}, weights(1, 1, 0)...)
	f.picks(3, Active)
	if err := f.Reset("wlc", Options{Ties: 9}); err == nil {
		t.Error("a bad reset was taken")
	}
	if name, _ := f.Scheduler(); name != "rr" {
		t.Errorf("want rr after a bad reset, got %s", name)
	}
	if err := f.Reset("lc", Options{}); err != nil {
		t.Fatal(err)
	}
	if want, got := "B", f.picks(1, Active); want != got {
		t.Errorf("want lc to choose %s, got %s", want, got)
	}
	if diff := cmp.Diff([]uint32{2, 2, 0}, f.active()); diff != "" {
		t.Errorf("active (-want +got):\n%s", diff)
	}
}

func TestText(t *testing.T) {
	for _, want := range []Ties{TiesFirst, TiesRandom, TiesRoundRobin} {
		var got Ties
		b, err := want.MarshalText()
		if err != nil || got.UnmarshalText(b) != nil || got != want || string(b) != want.String() {
			t.Errorf("want %v, got %v (%q, %v)", want, got, b, err)
		}
	}
	for _, want := range []Overhead{OverheadTotal, OverheadInactive} {
		var got Overhead
		b, err := want.MarshalText()
		if err != nil || got.UnmarshalText(b) != nil || got != want || string(b) != want.String() {
			t.Errorf("want %v, got %v (%q, %v)", want, got, b, err)
		}
	}
	ties := Ties(7)
	if _, err := ties.MarshalText(); err == nil || ties.String() != "Ties(7)" {
		t.Errorf("Ties(7) is %q, marshals with %v", ties, err)
	}
	if err := ties.UnmarshalText([]byte("last")); err == nil || ties != 7 {
		t.Errorf("%q was read as %v", "last", ties)
	}
}
