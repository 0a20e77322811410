package sched

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// deterministic are the schedulers that the model decides for.
var deterministic = map[string]func(*kernel) *kdest{
	"rr":           (*kernel).rr,
	"wrr":          (*kernel).wrr,
	"lc":           (*kernel).lc,
	"wlc":          (*kernel).wlc,
	"sed":          (*kernel).sed,
	"nq":           (*kernel).nq,
	"fo":           (*kernel).fo,
	"ovf":          (*kernel).ovf,
	"swrr":         (*kernel).swrr,
	"least-active": (*kernel).leastActive,
}

// both is a table and the model of it, driven by the same operations.
type both struct {
	t     fatal
	intn  func(n int) int
	name  string
	opt   Options
	table *Table
	k     kernel
	// all are the servers, listed or not, each with its model.
	all []*pair
	// conns are the open connections.
	conns []conn
	picks int
}

type pair struct {
	s      *Server
	d      *kdest
	listed bool
}

type conn struct {
	p  *pair
	st State
}

type fatal interface {
	Fatalf(format string, args ...any)
}

func newBoth(t fatal, intn func(int) int, name string, o Overhead) *both {
	b := &both{t: t, intn: intn, name: name, opt: Options{Overhead: o}, k: kernel{old: o == OverheadInactive}}
	var err error
	if b.table, err = New(name, b.opt); err != nil {
		t.Fatalf("%v", err)
	}
	b.init()
	return b
}

func (b *both) init() {
	b.k.cur = -1
	for _, d := range b.k.list {
		d.current = 0
	}
	if b.name == "wrr" {
		b.k.wrrInit()
	}
}

func (b *both) changed() {
	if b.name == "wrr" {
		b.k.wrrChanged()
	}
}

// someWeights has many that tie, some that share factors, and extremes.
var someWeights = []uint32{0, 1, 1, 1, 2, 2, 3, 4, 6, 10, 10, 100, 65535}

func (b *both) config() Config {
	c := Config{Weight: someWeights[b.intn(len(someWeights))]}
	if b.intn(3) == 0 {
		c.Upper = uint32(1 + b.intn(6))
		c.Lower = uint32(b.intn(int(c.Upper) + 1))
	}
	return c
}

// step does one operation on both and compares.
func (b *both) step() {
	switch op := b.intn(100); {
	case op < 45 || len(b.all) == 0:
		if len(b.all) < 3 {
			b.insertNew()
			return
		}
		b.pick()
	case op < 70:
		b.end()
	case op < 78:
		b.close()
	case op < 84:
		p := b.some()
		c := b.config()
		b.table.Update(p.s, c)
		b.k.updateDest(p.d, int64(c.Weight), int64(c.Upper), int64(c.Lower))
		if p.listed {
			b.changed()
		}
	case op < 87:
		if len(b.all) < 40 {
			b.insertNew()
		}
	case op < 92:
		b.toggle(b.some())
	case op < 95:
		b.persist()
	case op < 99:
		b.request()
	default:
		if err := b.table.Reset(b.name, b.opt); err != nil {
			b.t.Fatalf("%v", err)
		}
		b.init()
	}
	for _, p := range b.all {
		if int64(p.s.Active()) != p.d.active || int64(p.s.Inactive()) != p.d.inact ||
			int64(p.s.Persistent()) != p.d.persist || p.s.Overloaded() != p.d.overload {
			b.t.Fatalf("server %d: want %+v, got %d/%d/%d overloaded %v", p.d.id, p.d,
				p.s.Active(), p.s.Inactive(), p.s.Persistent(), p.s.Overloaded())
		}
	}
}

func (b *both) some() *pair { return b.all[b.intn(len(b.all))] }

func (b *both) insertNew() {
	id := len(b.all)
	c := b.config()
	p := &pair{s: testServer(id, c), d: &kdest{id: uint32(id)}}
	b.k.updateDest(p.d, int64(c.Weight), int64(c.Upper), int64(c.Lower))
	b.all = append(b.all, p)
	b.toggle(p)
}

func (b *both) toggle(p *pair) {
	if p.listed {
		b.table.Remove(p.s)
		b.k.del(p.d)
	} else {
		b.table.Insert(p.s)
		b.k.add(p.d)
		p.d.current = 0
	}
	p.listed = !p.listed
	b.changed()
}

func (b *both) pick() {
	b.picks++
	peeked := b.table.Peek(nil)
	st := State(b.intn(3))
	got := b.table.Pick(nil, st)
	d := deterministic[b.name](&b.k)
	switch {
	case got != peeked:
		b.t.Fatalf("pick %d: peek said %v, pick %v", b.picks, call(peeked), call(got))
	case d == nil && got == nil:
		return
	case d == nil || got == nil || got.ID() != d.id:
		b.t.Fatalf("pick %d: want %+v, got %v", b.picks, d, call(got))
	}
	p := b.all[d.id]
	switch st {
	case Active:
		b.k.bind(d, &d.active)
	case Inactive:
		b.k.bind(d, &d.inact)
	case Uncounted:
		return
	}
	b.conns = append(b.conns, conn{p, st})
}

// end ends a connection.
func (b *both) end() {
	if len(b.conns) == 0 {
		return
	}
	i := b.intn(len(b.conns))
	c := b.conns[i]
	b.conns[i] = b.conns[len(b.conns)-1]
	b.conns = b.conns[:len(b.conns)-1]
	if !b.table.Count(c.p.s, c.st, Uncounted) {
		b.t.Fatalf("server %d has no %v connection to end", c.p.d.id, c.st)
	}
	if c.st == Active {
		b.k.unbind(c.p.d, &c.p.d.active)
	} else {
		b.k.unbind(c.p.d, &c.p.d.inact)
	}
}

// close makes a connection inactive.
func (b *both) close() {
	if len(b.conns) == 0 {
		return
	}
	c := &b.conns[b.intn(len(b.conns))]
	if c.st == Active {
		c.st = Inactive
		b.table.Count(c.p.s, Active, Inactive)
		c.p.d.active--
		c.p.d.inact++
	}
}

func (b *both) persist() {
	p := b.some()
	if p.d.persist > 0 && b.intn(2) == 0 {
		b.table.Persist(p.s, -1)
		b.k.unbind(p.d, &p.d.persist)
	} else {
		b.table.Persist(p.s, 1)
		b.k.bind(p.d, &p.d.persist)
	}
}

func (b *both) request() {
	p := b.some()
	if p.d.busy > 0 && b.intn(2) == 0 {
		b.table.Request(p.s, -1)
		p.d.busy--
	} else {
		b.table.Request(p.s, 1)
		p.d.busy++
	}
}

// TestPicksAsModel drives tables and the plain model with the same random
// operations: every pick, count and overload mark must be equal.
func TestPicksAsModel(t *testing.T) {
	for name := range deterministic {
		for _, o := range []Overhead{OverheadTotal, OverheadInactive} {
			t.Run(fmt.Sprintf("%s/%v", name, o), func(t *testing.T) {
				picks := 0
				for seed := range uint64(20) {
					b := newBoth(t, rand.New(rand.NewPCG(seed, 7)).IntN, name, o)
					for range 2500 {
						b.step()
					}
					picks += b.picks
				}
				if picks < 10_000 {
					t.Errorf("want at least 10,000 picks, got %d", picks)
				}
			})
		}
	}
}

// TestPicksAsModelShrunk is the same with rapid, which finds short failures.
func TestPicksAsModelShrunk(t *testing.T) {
	for name := range deterministic {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			o := rapid.SampledFrom([]Overhead{OverheadTotal, OverheadInactive}).Draw(t, "overhead")
			intn := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
			b := newBoth(t, intn, name, o)
			for range rapid.IntRange(1, 120).Draw(t, "steps") {
				b.step()
			}
		}))
	}
}
