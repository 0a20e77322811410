package userspace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/userspace/flowtable"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// TestCountsAreConntracks does everything at random that happens to an engine:
// flows that begin, are queued twice, are dropped, close, end and use their tuple
// again; flows that the rules balance alone; events that get lost; real servers
// that come, go and come back; resyncs in whose middle all of that goes on; dumps
// that fail; restarts. Connections of some services end without an event, when
// their time is over, before it, and long after it. When it has settled, the counts
// are those of conntrack's table, and no count ever would have gone below 0.
func TestCountsAreConntracks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &chaos{rig: newRig(t), rnd: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)), t: rt}
		c.services = []ipvs.Service{web, udpService("192.0.2.10:53"), persistentWeb, loudWeb}
		for _, s := range c.services {
			if s.Address == loudWeb.Address {
				c.apply(addOp(s), limited(s, one), limited(s, two), add(s, three, 1))
				continue
			}
			c.apply(addOp(s), add(s, one, 1), add(s, two, 2), add(s, three, 3))
		}
		if c.rnd.IntN(2) == 0 {
			if _, err := c.engine.SetSysctl(sysctlNodest, "1"); err != nil {
				t.Fatal(err)
			}
		}
		steps := rapid.IntRange(1, 300).Draw(rt, "steps")
		for range steps {
			c.step()
			c.check()
		}
		c.settle()
	})
}

var persistentWeb = func() ipvs.Service {
	s := tcpService("192.0.2.11:80")
	s.Flags, s.Persistence.Timeout = ipvs.FlagPersistent, 5*time.Minute
	return s
}()

// loudWeb has real servers whose connections make events at their ends.
var loudWeb = tcpService("192.0.2.12:80")

func limited(s ipvs.Service, address string) ipvs.Op {
	op := add(s, address, 2)
	op.Destination.UpperThreshold, op.Destination.LowerThreshold = 1000, 900
	return op
}

type chaos struct {
	*rig
	t        *rapid.T
	rnd      *rand.Rand
	services []ipvs.Service
	lossy    bool
	// miscounted says that the rules' counters were wrong once, or that the engine
	// had to guess what became of a flow and guessed wrong.
	miscounted bool
}

func (c *chaos) step() {
	switch c.rnd.IntN(26) {
	case 0:
		c.edit()
	case 1:
		c.pass(time.Duration(c.rnd.IntN(4000)) * time.Millisecond)
	case 2:
		c.racingResync()
	case 3:
		c.lossy = !c.lossy
		c.kernel.lose = nil
		if c.lossy {
			c.kernel.lose = func() bool { return c.rnd.IntN(3) == 0 }
		}
	case 4:
		if err := c.engine.maintain(context.Background()); err != nil {
			c.t.Fatal(err)
		}
	case 5:
		if c.rnd.IntN(5) == 0 {
			for _, en := range c.kernel.entries {
				c.miscounted = c.miscounted || en.quiet // it is not known since when
			}
			c.start() // the next lbd
		}
	case 6:
		c.engine.expireTemplates()
	case 7:
		c.miscount()
	case 8, 9:
		c.age()
	default:
		c.traffic()
	}
}

// age lets closed connections end, or lets them live on as those do that only one
// side has closed.
func (c *chaos) age() {
	// In the time that passes counters are read often, and dumps come.
	c.engine.tickEvents()
	if err := c.engine.resync(context.Background()); err != nil {
		c.t.Fatal(err)
	}
	c.clock += time.Duration(c.rnd.IntN(60)) * time.Second
	if c.rnd.IntN(3) > 0 {
		c.kernel.expire()
	} else {
		c.miscounted = true
	}
	c.engine.tickEvents()
}

// traffic is something that happens to one flow of few.
func (c *chaos) traffic() {
	svc := c.services[c.rnd.IntN(len(c.services))]
	tu := tupleTo(svc, fmt.Sprintf("198.51.100.%d:%d", 1+c.rnd.IntN(3), 1000+c.rnd.IntN(10)))
	switch c.rnd.IntN(10) {
	case 0, 1, 2: // a new flow, perhaps queued twice
		if svc.Protocol == ipvs.UDP && c.kernel.entries[tu] != nil {
			return // no packet of it is queued
		}
		if en := c.kernel.entries[tu]; en == nil || !en.quiet {
			c.guess(tu)
		}
		c.kernel.end(tu)
		c.begin(tu)
	case 3: // balanced by the rules alone
		if s := c.someServer(svc); s != nil && c.kernel.entries[tu] == nil {
			c.guess(tu)
			c.kernel.begin(tu, c.engine.marks.of(s.id), true)
			// Not before the next tick is the tuple used again.
			c.engine.tickEvents()
		}
	case 4, 5, 6:
		if svc.Protocol != ipvs.TCP {
			return
		}
		if c.rnd.IntN(5) == 0 {
			for range c.rnd.IntN(4) { // SYN and FIN by turns
				c.kernel.reopen(tu)
				c.kernel.close(tu)
			}
			c.kernel.reopen(tu)
			return
		}
		if c.rnd.IntN(4) == 0 {
			c.kernel.reset(tu)
			return
		}
		c.kernel.close(tu)
	case 7, 8:
		if en := c.kernel.entries[tu]; en != nil && en.quiet {
			c.miscounted = true // before its time: only a dump tells
		}
		c.kernel.end(tu)
	case 9:
		c.engine.mu.Lock()
		c.engine.drain()
		c.engine.mu.Unlock()
	}
}

// guess notes that a tuple is used again whose flow the engine takes for one that
// had closed quietly, and that was not.
func (c *chaos) guess(tu flow.Tuple) {
	if c.engine.flows.Get(&tu) != nil && c.kernel.entries[tu] == nil {
		c.miscounted = true
	}
}

func (c *chaos) begin(tu flow.Tuple) {
	seq := c.rnd.Uint32()
	if tu.Protocol != 6 {
		seq = 0
	}
	mark := c.queue(tu, seq)
	if c.rnd.IntN(4) == 0 {
		// The end of a flow whose begin was lost may be taken for that of this one.
		if again := c.queue(tu, seq); again != mark && !c.kernel.everLost {
			c.t.Fatalf("the same packet got marks %#x and %#x", mark, again)
		}
	}
	if s := c.engine.model.server(c.engine.marks.id(mark)); s != nil && c.rnd.IntN(5) > 0 {
		if s.dead {
			c.t.Fatalf("%v went to a deleted real server", tu)
		}
		c.kernel.begin(tu, mark, false)
	}
}

func (c *chaos) someServer(svc ipvs.Service) *server {
	s := c.engine.model.services[svc.ServiceKey]
	if s == nil || len(s.servers) == 0 {
		return nil
	}
	return s.servers[c.rnd.IntN(len(s.servers))]
}

// miscount makes the rules' counter of a real server wrong: its element is made
// anew, or both sides closed at once.
func (c *chaos) miscount() {
	if c.rnd.IntN(4) > 0 {
		return
	}
	for _, counters := range []map[uint32]uint64{c.kernel.closed, c.kernel.closedQuiet} {
		for mark := range counters {
			switch c.rnd.IntN(4) {
			case 0:
				counters[mark] = 0
				c.miscounted = true
			case 1:
				counters[mark]++
				c.miscounted = true
			}
		}
	}
}

// edit changes a real server, or a service.
func (c *chaos) edit() {
	svc := c.services[c.rnd.IntN(len(c.services))]
	a := []string{one, two, three}[c.rnd.IntN(3)]
	ops := []ipvs.Op{
		remove(svc, a), add(svc, a, 1), update(svc, a, uint32(c.rnd.IntN(3))), deleteOp(svc), addOp(svc),
	}
	op := ops[c.rnd.IntN(len(ops))]
	err := c.engine.Apply(context.Background(), []ipvs.Op{op})
	if b := (*ipvs.BatchError)(nil); err != nil && !errors.As(err, &b) {
		c.t.Fatalf("%v: %v", op, err)
	}
}

// racingResync goes on with everything while a dump runs.
func (c *chaos) racingResync() {
	c.kernel.during = func(*conntrack.Event) {
		for range c.rnd.IntN(4) {
			c.traffic()
		}
	}
	if c.rnd.IntN(5) == 0 {
		c.kernel.dumpError = conntrack.ErrInterrupted
	}
	err := c.engine.resync(context.Background())
	if !errors.Is(err, c.kernel.dumpError) {
		c.t.Fatal(err)
	}
	c.kernel.during, c.kernel.dumpError = nil, nil
}

// check holds what must be true at any time: the counts are those of the table
// of flows.
func (c *chaos) check() {
	if c.engine.underflows > 0 {
		c.t.Fatalf("a count would have gone below 0: %s", c.log)
	}
	flows := 0
	open, inactive := make(map[uint32]int), make(map[uint32]int)
	for part := range flowtable.Shards {
		c.engine.flows.Sweep(part, func(f *flowtable.Flow) bool {
			switch {
			case f.Open:
				open[f.Server]++
			case f.State == sched.Inactive:
				inactive[f.Server]++
			}
			return false
		})
	}
	for _, s := range c.engine.model.servers {
		if s == nil {
			continue
		}
		flows += s.flows
		if n := int(s.sched.Active()+s.sched.Inactive()) + s.ends.over; n != s.flows || s.ends.over < 0 {
			c.t.Fatalf("%v: %d connections and %d flows, %+v", s.key(), n, s.flows, s.ends)
		}
		due := 0
		for _, d := range s.ends.due {
			due += d.n
		}
		if due != s.ends.waiting {
			c.t.Fatalf("%v: %d ends are due, %+v", s.key(), due, s.ends)
		}
		if n := open[s.id]; s.closing.open != n || s.closing.ahead > n {
			c.t.Fatalf("%v: %+v and %d open flows", s.key(), s.closing, n)
		}
		if n := inactive[s.id] + max(s.closing.ahead, 0) - s.ends.over; int(s.sched.Inactive()) != n {
			c.t.Fatalf("%v: %d inactive, want %d of %+v, %+v", s.key(), s.sched.Inactive(), n, s.closing, s.ends)
		}
	}
	if flows != c.engine.flows.Len() {
		c.t.Fatalf("%d flows of real servers, %d in the table", flows, c.engine.flows.Len())
	}
}

// compareInactive compares what needs no resync: who never lost an event knows
// how many connections have closed.
func (c *chaos) compareInactive() {
	want := make(map[uint32]int)
	for _, en := range c.kernel.entries {
		if en.Orig.Protocol == 6 && en.Mark&testInactive != 0 {
			want[c.engine.marks.id(en.Mark)]++
		}
	}
	for id, s := range c.engine.model.servers {
		if s != nil && s.service.Protocol == ipvs.TCP && int(s.sched.Inactive()) != want[uint32(id)] {
			c.t.Fatalf("%v: want %d inactive before the resync, got %d", s.key(), want[uint32(id)], s.sched.Inactive())
		}
	}
}

// calm goes on to when none of the connections is near its end, which the engine
// knows to some seconds.
func (c *chaos) calm() {
	const near = 10 * time.Second
	for {
		ending := false
		for _, en := range c.kernel.entries {
			left := ruleset.TimeWait - (c.clock - en.closed)
			ending = ending || en.quiet && left < near && left > -near
		}
		if !ending {
			break
		}
		c.clock += near
	}
	c.kernel.expire()
	c.engine.tickEvents()
}

// settle ends the losses, lets a resync follow, and compares.
func (c *chaos) settle() {
	c.kernel.lose = nil
	c.pass(time.Second)
	if !c.kernel.everLost && !c.kernel.deleted && !c.miscounted {
		c.calm()
		c.compareInactive()
	}
	c.pass(5 * time.Second)
	c.resync()
	type counts struct{ active, inactive int }
	want := make(map[uint32]counts)
	for _, en := range c.kernel.entries {
		id := c.engine.marks.id(en.Mark)
		n := want[id]
		if en.Orig.Protocol == 6 && en.Mark&testInactive == 0 {
			n.active++
		} else {
			n.inactive++
		}
		want[id] = n
	}
	for id, s := range c.engine.model.servers {
		if s == nil {
			if want[uint32(id)] != (counts{}) {
				c.t.Fatalf("the mark of server %d was given back, and there are %+v", id, want[uint32(id)])
			}
			continue
		}
		got := counts{int(s.sched.Active()), int(s.sched.Inactive())}
		if got != want[uint32(id)] {
			c.t.Fatalf("%v: want %+v, got %+v", s.key(), want[uint32(id)], got)
		}
	}
	// Templates outlive their flows by their timeout, and no longer.
	for tu := range c.kernel.entries {
		c.kernel.end(tu)
	}
	c.pass(10 * time.Minute)
	c.check()
	c.resync()
	c.engine.expireTemplates()
	for _, s := range c.engine.model.servers {
		if s != nil && (s.sched.Persistent() != 0 || s.templates != 0 || s.flows != 0) {
			c.t.Fatalf("%v: %d templates counted, %d there, %d flows", s.key(), s.sched.Persistent(), s.templates, s.flows)
		}
	}
}
