package userspace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// TestApplyIsTheFakes does random batches on the engine and on the table that
// follows the kernel: the same operations fail, with the same errors, and the
// same table comes of it.
func TestApplyIsTheFakes(t *testing.T) {
	keys := []ipvs.Service{web, web6, udpService("192.0.2.10:80"), {ServiceKey: ipvs.MarkService(ipvs.IPv4, 7), Scheduler: "rr"}}
	rapid.Check(t, func(rt *rapid.T) {
		g := newRig(t)
		fake := ipvstest.New()
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		for range rapid.IntRange(1, 20).Draw(rt, "batches") {
			var ops []ipvs.Op
			for range 1 + rnd.IntN(12) {
				s := keys[rnd.IntN(len(keys))]
				s.Scheduler = []ipvs.Scheduler{"wlc", "rr", "lc", "nosuch"}[rnd.IntN(4)]
				op := ipvs.Op{Kind: ipvs.OpKind(1 + rnd.IntN(6)), Service: s}
				format := "10.0.0.%d:80"
				if s.Family == ipvs.IPv6 {
					format = "[2001:db8:1::%d]:80"
				}
				op.Destination.Address = netip.MustParseAddrPort(fmt.Sprintf(format, 1+rnd.IntN(3)))
				op.Destination.Weight = rnd.Uint32N(3)
				ops = append(ops, op)
			}
			same(rt, ops, fake.Apply(t.Context(), ops), g.engine.Apply(t.Context(), ops))
			want, _ := fake.Table(t.Context())
			got, err := g.engine.Table(t.Context())
			if err != nil {
				rt.Fatal(err)
			}
			if d := diff(text(want), text(got)); d != "" {
				rt.Fatalf("table after %v (-want +got):\n%s", ops, d)
			}
			if rnd.IntN(4) == 0 {
				g.start() // the next lbd has the same
				next, _ := g.engine.Table(t.Context())
				if d := diff(text(want), text(next)); d != "" {
					rt.Fatalf("table of the next engine (-want +got):\n%s", d)
				}
			}
			ruled(rt, g)
		}
	})
}

func text(table []ipvs.TableEntry) []string {
	var lines []string
	for _, e := range table {
		lines = append(lines, fmt.Sprintf("%v %+v", e.ServiceKey, e.Service))
		for _, d := range e.Destinations {
			lines = append(lines, fmt.Sprintf("%v %+v %+v", e.ServiceKey, d.Destination, d.Conns))
		}
	}
	return lines
}

func same(t *rapid.T, ops []ipvs.Op, want, got error) {
	var wantBatch, gotBatch *ipvs.BatchError
	if errors.As(want, &wantBatch) != errors.As(got, &gotBatch) {
		t.Fatalf("Apply(%v): want %v, got %v", ops, want, got)
	}
	if wantBatch == nil {
		return
	}
	lines := func(b *ipvs.BatchError) (s []string) {
		for _, f := range b.Failed {
			var errno syscall.Errno
			errors.As(f.Err, &errno)
			s = append(s, fmt.Sprintf("%d %s %v %v %d", f.Index, f.Err.Op, f.Err.Service, f.Err.Destination, errno))
		}
		return s
	}
	if d := diff(lines(wantBatch), lines(gotBatch)); d != "" {
		t.Fatalf("failures of %v (-want +got):\n%s", ops, d)
	}
}

// ruled checks that the rules have each real server once, with a share where it
// has a weight.
func ruled(t *rapid.T, g *rig) {
	marks := make(map[uint32]bool)
	for _, s := range g.rules.spec.Servers {
		if marks[s.Mark] {
			t.Fatalf("mark %#x twice", s.Mark)
		}
		marks[s.Mark] = true
	}
	live := 0
	for _, s := range g.engine.model.services {
		live += len(s.servers)
		for _, sv := range s.servers {
			if !marks[g.engine.marks.of(sv.id)] {
				t.Fatalf("no rule for %v", sv.key())
			}
		}
	}
	if want := live + len(g.rules.spec.Dead); want != len(marks) {
		t.Fatalf("%d real servers in the rules, want %d", len(marks), want)
	}
}

// TestApplyOrder looks at what there is at the moment when the rules change: the
// store has it already, a real server that goes gets nothing more, and one that
// comes gets nothing yet.
func TestApplyOrder(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	n := 0
	look := func(avoid string) func(ruleset.Spec) {
		return func(ruleset.Spec) {
			n++
			s, err := decodeStore(g.store.data)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, sv := range s.Services[0].Servers {
				found = found || sv.Address.String() == avoid
			}
			for _, sv := range s.Dead {
				found = found || sv.Address.String() == avoid
			}
			if !found {
				t.Errorf("%s is not in the store", avoid)
			}
			for i := range 4 {
				if got := g.connect(tupleTo(web, fmt.Sprintf("198.51.100.%d:%d", n, 1000+i)), 1); got == avoid || got == "" {
					t.Errorf("a connection went to %q while the rules were changed", got)
				}
			}
		}
	}
	g.rules.before = look(three)
	g.apply(add(web, three, 100))
	g.rules.before = look(two)
	g.apply(remove(web, two))
	g.rules.before = look(one)
	g.apply(update(web, one, 0))
	if n != 3 {
		t.Errorf("the rules changed %d times, want 3", n)
	}
}

// TestApplyNoGap has clients come while the rules change: a service that has a
// real server before and after never refuses them, whichever takes over.
func TestApplyNoGap(t *testing.T) {
	for _, tt := range []struct {
		name          string
		ops           []ipvs.Op
		during, after string
	}{
		{"the one raised takes over at once", []ipvs.Op{update(web, two, 1), update(web, one, 0)}, two, two},
		{"and from one that is deleted", []ipvs.Op{update(web, two, 1), remove(web, one)}, two, two},
		{"a new one after the rules", []ipvs.Op{add(web, three, 1), update(web, one, 0)}, one, three},
		{"and from one that is deleted", []ipvs.Op{add(web, three, 1), remove(web, one)}, one, three},
		{"none takes over", []ipvs.Op{add(web, three, 0), update(web, one, 0)}, "", ""},
		{"nor from one that is deleted", []ipvs.Op{remove(web, one)}, "", ""},
		{"the service is deleted", []ipvs.Op{deleteOp(web)}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.apply(addOp(web), add(web, one, 1), add(web, two, 0))
			port := 1000
			connect := func() string {
				port++
				return g.connect(tupleTo(web, fmt.Sprintf("198.51.100.1:%d", port)), 1)
			}
			var during string
			g.rules.before = func(ruleset.Spec) { during = connect() }
			g.rules.fail = errTest
			if err := g.engine.Apply(t.Context(), tt.ops); !errors.Is(err, errTest) {
				t.Fatalf("Apply: want %v, got %v", errTest, err)
			}
			if got := connect(); got != one {
				t.Errorf("the rules did not change, and a client got %q, want %s", got, one)
			}
			g.rules.fail = nil
			g.apply(tt.ops...)
			g.rules.before = nil
			if during != tt.during {
				t.Errorf("while the rules change: want %q, got %q", tt.during, during)
			}
			if got := connect(); got != tt.after {
				t.Errorf("after that: want %q, got %q", tt.after, got)
			}
		})
	}
}

// TestApplyFails has the rules or the store refuse: nothing has changed then, and
// the rules are written again later.
func TestApplyFails(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	before, _ := g.engine.Table(t.Context())
	state := string(g.store.data)
	batch := []ipvs.Op{addOp(web6), add(web, two, 1), remove(web, one)}
	for name, fail := range map[string]*error{"rules": &g.rules.fail, "store": &g.store.fail} {
		*fail = errTest
		err := g.engine.Apply(t.Context(), batch)
		var e *ipvs.Error
		if !errors.As(err, &e) || !errors.Is(err, errTest) || e.Op != "apply" {
			t.Errorf("%s: want an error of Apply, got %v", name, err)
		}
		*fail = nil
		after, _ := g.engine.Table(t.Context())
		if d := diff(text(before), text(after)); d != "" {
			t.Errorf("%s: table (-want +got):\n%s", name, d)
		}
		if string(g.store.data) != state {
			t.Errorf("%s: the store has\n%s\nwant\n%s", name, g.store.data, state)
		}
		if got := g.connect(tupleTo(web, "198.51.100.1:1000"), 1); got != one {
			t.Errorf("%s: a connection went to %q, want %s", name, got, one)
		}
		g.kernel.end(tupleTo(web, "198.51.100.1:1000"))
		g.pass(time.Second)
	}
	g.rules.applied = 0
	if err := g.engine.maintain(context.Background()); err != nil || g.rules.applied != 1 {
		t.Errorf("rules were written %d times, %v; want once", g.rules.applied, err)
	}
	g.apply(batch...)
	if len(g.engine.model.ids.used) != 2 || len(g.engine.model.serviceIDs.used) != 2 {
		t.Errorf("numbers in use: %v, %v", g.engine.model.ids.used, g.engine.model.serviceIDs.used)
	}
}

// TestApplyNothing writes nothing where nothing changes.
func TestApplyNothing(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	n := g.rules.applied
	g.apply(editOp(web), update(web, one, 1))
	if err := g.engine.Apply(t.Context(), []ipvs.Op{addOp(web), remove(web, two)}); err == nil {
		t.Error("want a BatchError")
	}
	if err := g.engine.SetTimeouts(t.Context(), ipvs.Timeouts{}); err != nil {
		t.Error(err)
	}
	if g.rules.applied != n {
		t.Errorf("rules were written %d times", g.rules.applied-n)
	}
}

// TestDeleteAndRevive is what the kernel does with a real server that is deleted
// and comes back, and with one that does not.
func TestDeleteAndRevive(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	tu := tupleTo(web, "198.51.100.1:1000")
	g.connect(tu, 1)
	g.apply(remove(web, one))
	if len(g.rules.spec.Dead) != 1 || g.rules.spec.Dead[0] != 0x100 || len(g.rules.spec.Servers) != 1 {
		t.Errorf("rules: dead %#x, servers %v", g.rules.spec.Dead, g.rules.spec.Servers)
	}
	g.counts(web.ServiceKey, map[string]string{})
	g.apply(add(web, one, 1))
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0"})
	if s := g.engine.model.services[web.ServiceKey].servers[0]; s.id != 1 || s.traffic != (traffic{}) {
		t.Errorf("revived: number %d, statistics %+v; want number 1, none", s.id, s.traffic)
	}
	g.apply(deleteOp(web), addOp(web), add(web, one, 1))
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0"})
	g.apply(deleteOp(web))
	g.apply(addOp(web), add(web, one, 1))
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0"})

	// Once its last flow is gone its mark is given back, not before.
	g.apply(remove(web, one))
	settle := func() {
		g.pass(5 * time.Second)
		g.resync()
		if err := g.engine.maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	settle()
	if len(g.rules.spec.Dead) != 1 {
		t.Fatal("the mark of a live flow was given back")
	}
	g.kernel.end(tu)
	settle()
	if len(g.rules.spec.Dead) != 0 || len(g.rules.spec.Servers) != 0 || g.engine.model.ids.used[1] {
		t.Errorf("rules: dead %#x, servers %v; numbers %v", g.rules.spec.Dead, g.rules.spec.Servers, g.engine.model.ids.used)
	}
	g.apply(add(web, one, 1))
	if s := g.engine.model.services[web.ServiceKey].servers[0]; s.id != 2 {
		t.Errorf("number of the next: want 2, got %d", s.id)
	}
}

// TestExpireNodest ends the connections of a deleted real server.
func TestExpireNodest(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	if old, err := g.engine.SetSysctl(sysctlNodest, "1"); err != nil || old != "0" {
		t.Fatalf("SetSysctl: %q, %v", old, err)
	}
	tuples := []string{"198.51.100.1:1000", "198.51.100.1:1001"}
	for _, c := range tuples {
		g.connect(tupleTo(web, c), 1)
	}
	g.apply(update(web, one, 0))
	if len(g.kernel.entries) != 2 {
		t.Errorf("weight 0 ended connections: %d left", len(g.kernel.entries))
	}
	g.apply(remove(web, one), remove(web, two))
	if len(g.kernel.entries) != 0 {
		t.Errorf("%d connections in conntrack", len(g.kernel.entries))
	}
	g.pass(time.Second)
	g.apply(add(web, one, 1))
	g.counts(web.ServiceKey, map[string]string{one: "0/0/0"})
}

// TestSchedulerInPlace changes the scheduler: counts and order stay.
func TestSchedulerInPlace(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	g.connect(tupleTo(web, "198.51.100.1:1000"), 1) // two
	edited := web
	edited.Scheduler = "rr"
	g.apply(editOp(edited))
	g.counts(web.ServiceKey, map[string]string{one: "0/0/0", two: "1/0/0"})
	var got []string
	for i := range 4 {
		got = append(got, g.connect(tupleTo(web, fmt.Sprintf("198.51.100.1:%d", 2000+i)), 1))
	}
	if d := diff([]string{two, one, two, one}, got); d != "" {
		t.Errorf("rr (-want +got):\n%s", d)
	}
	edited.Scheduler = "wlc:random"
	g.apply(editOp(edited))
	if name, o := g.engine.model.services[web.ServiceKey].table.Scheduler(); name != "wlc" || o.Ties.String() != "random" {
		t.Errorf("scheduler: want wlc with random ties, got %s, %v", name, o.Ties)
	}
}

// TestMarksRunOut has few marks.
func TestMarksRunOut(t *testing.T) {
	a := allocator{last: 3, used: make(map[uint32]bool)}
	for want := range uint32(3) {
		if got, err := a.take(); got != want+1 || err != nil {
			t.Fatalf("want %d, got %d, %v", want+1, got, err)
		}
	}
	if _, err := a.take(); !errors.Is(err, errNoMarks) {
		t.Errorf("want %v, got %v", errNoMarks, err)
	}
	a.give(2)
	if got, err := a.take(); got != 2 || err != nil {
		t.Errorf("want 2, got %d, %v", got, err)
	}
}

func TestMarks(t *testing.T) {
	for _, test := range []struct {
		mask, id, mark uint32
		err            bool
	}{
		{0x0fffff00, 1, 0x100, false},
		{0x0fffff00, 0xffffe, 0x0ffffe00, false},
		{0xc0000000, 2, 0x80000000, false},
		{0xffffffff, 0xfffffffe, 0xfffffffe, false},
		{0, 0, 0, true}, {0x100, 0, 0, true}, {0x0f0f0000, 0, 0, true},
	} {
		m, err := newMarks(test.mask)
		if (err != nil) != test.err {
			t.Errorf("mask %#x: %v", test.mask, err)
		}
		if err != nil {
			continue
		}
		if got := m.of(test.id); got != test.mark {
			t.Errorf("mask %#x: mark of %d: want %#x, got %#x", test.mask, test.id, test.mark, got)
		}
		if got := m.id(test.mark | ^test.mask); got != test.id {
			t.Errorf("mask %#x: number of %#x: want %d, got %d", test.mask, test.mark, test.id, got)
		}
		if got := m.id(m.refuse()); got != 0 {
			t.Errorf("mask %#x: number of the mark that refuses: want 0, got %d", test.mask, got)
		}
	}
}

// TestRetireLate has a flow of a deleted real server turn up while its mark is
// given back: it is kept then.
func TestRetireLate(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	id := g.engine.model.services[web.ServiceKey].index[netip.MustParseAddrPort(one)].id
	g.apply(remove(web, one))
	g.pass(5 * time.Second)
	g.resync()
	tu := tupleTo(web, "198.51.100.1:1000")
	g.rules.before = func(ruleset.Spec) {
		g.rules.before = nil
		g.kernel.begin(tu, g.engine.marks.of(id), true)
		g.engine.tickEvents()
	}
	maintain := func() {
		t.Helper()
		if err := g.engine.maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	maintain()
	maintain()
	if s := g.engine.model.server(id); s == nil || len(g.rules.spec.Dead) != 1 {
		t.Fatalf("the deleted real server is %v, dead in the rules are %v", s, g.rules.spec.Dead)
	}
	g.kernel.end(tu)
	g.pass(time.Second)
	maintain()
	if s := g.engine.model.server(id); s != nil || len(g.rules.spec.Dead) != 0 {
		t.Errorf("without flows: it is %v, dead in the rules are %v", s, g.rules.spec.Dead)
	}
}
