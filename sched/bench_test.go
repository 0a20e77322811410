package sched

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// churn is a table in a steady state: four connections a server, each pick is
// followed by the end of an older connection.
type churn struct {
	*Table
	packet Packet
	open   []*Server
	next   int
}

func newChurn(tb testing.TB, name string, servers int, o Options) *churn {
	tb.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	o.Rand = rnd
	o.Now = func() time.Duration { return 0 }
	t, err := New(name, o)
	if err != nil {
		tb.Fatal(err)
	}
	c := &churn{Table: t, packet: Packet{
		Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"),
		SrcPort: 40000, DstPort: 80, Protocol: 6,
	}}
	for i := range servers {
		t.Insert(testServer(i, Config{Weight: uint32(1 + rnd.IntN(10))}))
	}
	for range 4 * servers {
		if s := t.Pick(&c.packet, Active); s != nil {
			c.open = append(c.open, s)
		}
	}
	rnd.Shuffle(len(c.open), func(i, j int) { c.open[i], c.open[j] = c.open[j], c.open[i] })
	return c
}

func (c *churn) step() {
	old := &c.open[c.next]
	s := c.Pick(&c.packet, Active)
	if s == nil {
		return
	}
	c.Count(*old, Active, Uncounted)
	*old = s
	if c.next++; c.next == len(c.open) {
		c.next = 0
	}
}

func BenchmarkPick(b *testing.B) {
	for _, i := range Schedulers() {
		for _, n := range []int{10, 100, 1000, 10000} {
			b.Run(fmt.Sprintf("%s/%d", i.Name, n), func(b *testing.B) {
				c := newChurn(b, i.Name, n, Options{})
				b.ReportAllocs()
				for b.Loop() {
					c.step()
				}
			})
		}
	}
}

// TestAllocations has nothing on the packet path allocate.
func TestAllocations(t *testing.T) {
	for name, o := range variants() {
		t.Run(name, func(t *testing.T) {
			c := newChurn(t, o.name, 64, o.Options)
			s := testServer(64, Config{Weight: 1, Upper: 3})
			c.Insert(s)
			n := testing.AllocsPerRun(1000, func() {
				c.step()
				c.Peek(&c.packet)
				c.Count(s, Uncounted, Active)
				c.Count(s, Active, Inactive)
				c.Persist(s, 1)
				c.Request(s, 1)
				c.Observe(s, time.Millisecond)
				c.Request(s, -1)
				c.Persist(s, -1)
				c.Count(s, Inactive, Uncounted)
			})
			if n != 0 {
				t.Errorf("want no allocations, got %v", n)
			}
		})
	}
}

type variant struct {
	name string
	Options
}

// variants is every scheduler with every tie rule that it accepts.
func variants() map[string]variant {
	v := map[string]variant{}
	for _, i := range Schedulers() {
		v[i.Name] = variant{name: i.Name}
		for _, ties := range []Ties{TiesRandom, TiesRoundRobin} {
			if i.Ties {
				v[i.Name+":"+ties.String()] = variant{i.Name, Options{Ties: ties}}
			}
		}
	}
	return v
}
