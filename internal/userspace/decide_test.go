package userspace

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/nfqueue"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
)

const (
	one   = "10.0.0.1:80"
	two   = "10.0.0.2:80"
	three = "10.0.0.3:80"
)

// TestDecide follows connections of TCP from the first packet to the end of the
// entry in conntrack.
func TestDecide(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 2))
	want := []string{two, one, two, two, one, two}
	for i, w := range want {
		if got := g.connect(tupleTo(web, fmt.Sprintf("198.51.100.1:%d", 1000+i)), uint32(i)); got != w {
			t.Errorf("connection %d: want %s, got %s", i, w, got)
		}
	}
	g.counts(web.ServiceKey, map[string]string{one: "2/0/0", two: "4/0/0"})
	for i := range 3 {
		g.kernel.close(tupleTo(web, fmt.Sprintf("198.51.100.1:%d", 1000+i)))
	}
	g.pass(time.Second)
	g.counts(web.ServiceKey, map[string]string{one: "1/1/0", two: "2/2/0"})
	for i := range 4 {
		g.kernel.end(tupleTo(web, fmt.Sprintf("198.51.100.1:%d", 1000+i)))
	}
	g.pass(time.Second)
	g.counts(web.ServiceKey, map[string]string{one: "1/1/0", two: "1/2/0"}) // nothing tells of those
	g.pass(ruleset.TimeWait)
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0", two: "1/0/0"})
	stats := g.engine.model.services[web.ServiceKey].traffic.stats()
	if stats.Connections != 6 {
		t.Errorf("connections: want 6, got %d", stats.Connections)
	}
}

// TestDecideMarks keeps what others have in a packet's mark.
func TestDecideMarks(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	payload := firstPacket(tupleTo(web, "198.51.100.1:1000"), 1)
	v := g.answer(nfqueue.Packet{Payload: payload, Mark: 0xf0abcd05})
	if want := (nfqueue.Verdict{Accept: true, SetMark: true, Mark: 0xf0000105}); v != want {
		t.Errorf("verdict: want %+v, got %+v", want, v)
	}
	other := firstPacket(tupleTo(tcpService("192.0.2.11:80"), "198.51.100.1:1000"), 1)
	if v := g.answer(nfqueue.Packet{Payload: other, Mark: 7}); v != pass {
		t.Errorf("verdict on a packet of no service: want %+v, got %+v", pass, v)
	}
	if v := g.answer(nfqueue.Packet{Payload: payload[:12]}); v != pass || g.engine.unparsed.Load() != 1 {
		t.Errorf("verdict on half a packet: want %+v, got %+v, %d unparsed", pass, v, g.engine.unparsed.Load())
	}
}

// TestDecideRefuses has no real server that may take a connection.
func TestDecideRefuses(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web))
	refuse := g.engine.marks.refuse()
	if got := g.queue(tupleTo(web, "198.51.100.1:1000"), 1); got != refuse {
		t.Errorf("without real servers: want mark %#x, got %#x", refuse, got)
	}
	g.apply(add(web, one, 0))
	if got := g.queue(tupleTo(web, "198.51.100.1:1000"), 2); got != refuse {
		t.Errorf("with weight 0: want mark %#x, got %#x", refuse, got)
	}
	g.apply(update(web, one, 1))
	if got := g.queue(tupleTo(web, "198.51.100.1:1000"), 3); got != 0x100 {
		t.Errorf("with weight 1: want mark %#x, got %#x", 0x100, got)
	}
}

// TestDecideOnce has the same packet several times: while it is queued, and again
// since its flow was never confirmed.
func TestDecideOnce(t *testing.T) {
	for _, svc := range []ipvs.Service{web, web6, udpService("192.0.2.10:53")} {
		t.Run(svc.ServiceKey.String(), func(t *testing.T) {
			servers := []string{one, two}
			if svc.Family == ipvs.IPv6 {
				servers = []string{"[2001:db8:1::1]:80", "[2001:db8:1::2]:80"}
			}
			g := newRig(t)
			g.apply(addOp(svc), add(svc, servers[0], 1), add(svc, servers[1], 1))
			client := "198.51.100.1:1000"
			if svc.Family == ipvs.IPv6 {
				client = "[2001:db8:2::1]:1000"
			}
			tu := tupleTo(svc, client)
			first := g.queue(tu, 77)
			for range 3 {
				if again := g.queue(tu, 77); again != first {
					t.Errorf("the same packet got %#x and %#x", first, again)
				}
			}
			state := func(n string) string {
				if svc.Protocol == ipvs.UDP {
					return "0/" + n + "/0"
				}
				return n + "/0/0"
			}
			g.counts(svc.ServiceKey, map[string]string{servers[1]: state("1"), servers[0]: "0/0/0"})
			// Nothing ever confirmed it.
			g.pass(5 * time.Second)
			g.resync()
			g.counts(svc.ServiceKey, map[string]string{servers[1]: "0/0/0", servers[0]: "0/0/0"})
		})
	}
}

// TestDecideReuse has a client's port used again, after the end of the flow and
// after a first packet that got nowhere.
func TestDecideReuse(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	tu := tupleTo(web, "198.51.100.1:1000")
	if got := g.connect(tu, 1); got != two {
		t.Fatalf("first: want %s, got %s", two, got)
	}
	g.kernel.close(tu)
	g.pass(time.Second)
	g.counts(web.ServiceKey, map[string]string{one: "0/0/0", two: "0/1/0"})
	// In TIME_WAIT: conntrack ends the old flow before it begins the new, and the
	// event of that is not read yet.
	if got := g.connect(tu, 2); got != two {
		t.Errorf("reused: want %s, got %s", two, got)
	}
	g.counts(web.ServiceKey, map[string]string{one: "0/0/0", two: "1/0/0"})
	g.pass(time.Second)
	g.counts(web.ServiceKey, map[string]string{one: "0/0/0", two: "1/0/0"})

	// A first packet that was dropped later on its way.
	lost := tupleTo(web, "198.51.100.1:2000")
	g.queue(lost, 1)
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0", two: "1/0/0"})
	g.queue(lost, 2)
	g.counts(web.ServiceKey, map[string]string{one: "1/0/0", two: "1/0/0"})
}

// TestDecideConnReuseMode keeps the server of a client's port.
func TestDecideConnReuseMode(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	if _, err := g.engine.SetSysctl(sysctlReuse, "0"); err != nil {
		t.Fatal(err)
	}
	tu := tupleTo(web, "198.51.100.1:1000")
	g.connect(tu, 1)                                // two
	g.connect(tupleTo(web, "198.51.100.1:1001"), 1) // one
	g.connect(tupleTo(web, "198.51.100.1:1002"), 1) // two
	if got := g.connect(tu, 2); got != two {        // one would be the choice
		t.Errorf("with 0: want %s, got %s", two, got)
	}
	g.apply(update(web, two, 0))
	if got := g.connect(tu, 3); got != two {
		t.Errorf("with 0 and weight 0: want %s, got %s", two, got)
	}
	if _, err := g.engine.SetSysctl(sysctlNodest, "1"); err != nil {
		t.Fatal(err)
	}
	if got := g.connect(tu, 4); got != one {
		t.Errorf("with expire_nodest_conn and weight 0: want %s, got %s", one, got)
	}
	g.counts(web.ServiceKey, map[string]string{one: "2/0/0", two: "1/0/0"})
}

// TestFind is the order in which the kernel looks services up.
func TestFind(t *testing.T) {
	g := newRig(t)
	port := web
	any := tcpService("192.0.2.10:0")
	any.Flags, any.Persistence.Timeout = ipvs.FlagPersistent, time.Minute
	mark := ipvs.Service{ServiceKey: ipvs.MarkService(ipvs.IPv4, 7), Scheduler: "rr"}
	g.apply(addOp(port), addOp(any), addOp(mark), add(port, one, 1), add(any, "10.0.0.2:0", 1), add(mark, "10.0.0.3:0", 1))
	for i, test := range []struct {
		dst  string
		mark uint32
		want string
	}{
		{"192.0.2.10:80", 0, one},
		{"192.0.2.10:81", 0, "10.0.0.2:0"},
		{"192.0.2.10:80", 7, "10.0.0.3:0"},
		{"192.0.2.99:99", 7, "10.0.0.3:0"},
		{"192.0.2.10:80", 8, one},
		// The engine's own bits are no mark of others.
		{"192.0.2.10:80", 0x0abcde07, "10.0.0.3:0"},
		{"192.0.2.11:80", 0, ""},
	} {
		payload := firstPacket(tupleTo(tcpService(test.dst), fmt.Sprintf("198.51.100.1:%d", 1000+i)), 1)
		v := g.answer(nfqueue.Packet{Payload: payload, Mark: test.mark})
		got := ""
		if s := g.engine.model.server(g.engine.marks.id(v.Mark)); s != nil && v.SetMark {
			got = s.Address.String()
		}
		if got != test.want {
			t.Errorf("%s with mark %#x: want %q, got %q", test.dst, test.mark, test.want, got)
		}
	}
}

// TestOnePacket schedules each datagram by itself, and counts none.
func TestOnePacket(t *testing.T) {
	g := newRig(t)
	svc := udpService("192.0.2.10:53")
	svc.Scheduler, svc.Flags = "rr", ipvs.FlagOnePacket
	g.apply(addOp(svc), add(svc, one, 1), add(svc, two, 1))
	tu := tupleTo(svc, "198.51.100.1:1000")
	got := make(map[uint32]int)
	for range 10 {
		got[g.queue(tu, 0)]++
	}
	if len(got) != 2 || got[0x100] != 5 || got[0x200] != 5 {
		t.Errorf("datagrams by mark: want 5 each, got %v", got)
	}
	g.counts(svc.ServiceKey, map[string]string{one: "0/0/0", two: "0/0/0"})
	s := g.engine.model.services[svc.ServiceKey].traffic.stats()
	if s.Connections != 10 || s.PacketsIn != 10 || s.BytesIn != 600 {
		t.Errorf("statistics: want 10 connections and packets, 600 bytes, got %+v", s)
	}
}

// TestDecideBatch has packets of all kinds in one batch.
func TestDecideBatch(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	packets := []nfqueue.Packet{
		{Payload: []byte("nonsense"), Mark: 1},
		{Payload: firstPacket(tupleTo(web, "198.51.100.1:1000"), 1), Mark: 0xf0abcd05},
		{Payload: firstPacket(tupleTo(tcpService("192.0.2.11:80"), "198.51.100.1:1000"), 1), Mark: 7},
		{Payload: firstPacket(tupleTo(web, "198.51.100.2:1000"), 1), Mark: 0x80000000},
	}
	g.reader.Batch(packets)
	for i, want := range []nfqueue.Verdict{pass, {Accept: true, SetMark: true, Mark: 0xf0000105}, pass, {Accept: true, SetMark: true, Mark: 0x80000100}} {
		if got := g.reader.Answer(i); got != want {
			t.Errorf("packet %d: want %+v, got %+v", i, want, got)
		}
	}
	g.counts(web.ServiceKey, map[string]string{one: "2/0/0"})
	if n := g.engine.unparsed.Load(); n != 1 {
		t.Errorf("want 1 packet unparsed, got %d", n)
	}
}

// TestFetchPanics leaves no lock behind where the table is broken: all of lbd would
// wait for it.
func TestFetchPanics(t *testing.T) {
	g := newRig(t)
	g.reader.read, g.engine.flows = []readPacket{{good: true}}, nil
	func() {
		defer func() {
			if recover() == nil {
				t.Error("want a panic")
			}
		}()
		g.reader.fetch()
	}()
	if !g.engine.mu.TryLock() {
		t.Fatal("the lock is held")
	}
	g.engine.mu.Unlock()
}

// TestReadersShare has two readers answer batches of the same flows at the same time:
// each flow is counted once.
func TestReadersShare(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	const flows, size = 500, 4
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			r := &reader{engine: g.engine}
			packets := make([]nfqueue.Packet, size)
			for n := range flows {
				for i := range packets {
					client := fmt.Sprintf("198.51.100.1:%d", 1000+(n+i)%flows)
					packets[i] = nfqueue.Packet{Payload: firstPacket(tupleTo(web, client), 1), Length: 60}
				}
				r.Batch(packets)
				for i := range packets {
					if v := r.Answer(i); !v.SetMark {
						t.Errorf("batch %d, packet %d: got %+v", n, i, v)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := g.engine.flows.Len(); n != flows {
		t.Errorf("want %d flows, got %d", flows, n)
	}
	g.counts(web.ServiceKey, map[string]string{one: "250/0/0", two: "250/0/0"})
}

// TestAnswerAllocates takes flows in and out again.
func TestAnswerAllocates(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1))
	tuples := []flow.Tuple{tupleTo(web, "198.51.100.1:1000"), tupleTo(web, "198.51.100.1:1001")}
	var batch []nfqueue.Packet
	for _, tu := range tuples {
		batch = append(batch, nfqueue.Packet{Payload: firstPacket(tu, 1), Length: 60})
	}
	n := testing.AllocsPerRun(1000, func() {
		g.reader.Batch(batch)
		for i := range batch {
			g.reader.Answer(i)
			g.engine.release(g.engine.flows.Get(&tuples[i]), lost)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations in two packets", n)
	}
}

func BenchmarkAnswer(b *testing.B) {
	g := newRig(b)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1), add(web, three, 1))
	tu := tupleTo(web, "198.51.100.1:1000")
	p := nfqueue.Packet{Payload: firstPacket(tu, 1), Length: 60}
	b.ReportAllocs()
	for b.Loop() {
		g.answer(p)
		g.engine.release(g.engine.flows.Get(&tu), lost)
	}
}

// BenchmarkAnswerAgain uses tuples again whose connections closed without a word, as
// clients of a busy service do.
func BenchmarkAnswerAgain(b *testing.B) {
	g := newRig(b)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1), add(web, three, 1))
	for _, s := range g.engine.model.services[web.ServiceKey].servers {
		s.ends.quiet = true
	}
	const tuples = 1 << 16
	packets := make([][]byte, tuples)
	for n := range packets {
		packets[n] = firstPacket(tupleTo(web, fmt.Sprintf("198.51.%d.%d:1000", n>>8, n&255)), 1)
		g.answer(nfqueue.Packet{Payload: packets[n], Length: 60})
	}
	// In no order that the processor could foresee; the packets are as far apart.
	rand.Shuffle(tuples, func(i, j int) { packets[i], packets[j] = packets[j], packets[i] })
	for _, size := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			batch := make([]nfqueue.Packet, size)
			b.ReportAllocs()
			for n := 0; n < b.N; n += size {
				for i := range batch {
					p := packets[(n+i)%tuples]
					p[20+7]++ // the sequence number
					batch[i] = nfqueue.Packet{Payload: p, Length: 60}
				}
				g.reader.Batch(batch)
				for i := range batch {
					g.reader.Answer(i)
				}
			}
		})
	}
}

// TestDecideReadsEventsOnce reads the events once for packets that came together,
// though each is of a tuple that is used again.
func TestDecideReadsEventsOnce(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	first, second := tupleTo(web, "198.51.100.1:1000"), tupleTo(web, "198.51.100.1:1001")
	g.connect(first, 1)
	g.connect(second, 2)
	g.kernel.end(first)
	g.kernel.end(second)
	before := g.kernel.drains
	for seq := range uint32(2) {
		g.reader.Batch([]nfqueue.Packet{
			{Payload: firstPacket(first, 1000+seq), Length: 60},
			{Payload: firstPacket(second, 2000+seq), Length: 60},
		})
		for i := range 2 {
			if v := g.reader.Answer(i); !v.SetMark {
				t.Errorf("packet %d: got %+v", i, v)
			}
		}
	}
	if n := g.kernel.drains - before; n != 2 {
		t.Errorf("want a reading for each of 2 batches, got %d", n)
	}
	g.counts(web.ServiceKey, map[string]string{one: "2/0/0"})
}
