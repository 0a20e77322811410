package main

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/lbd-project/lbd/sched"
)

// picker is a contender: it chooses and counts, and takes the end of a
// connection. Servers are numbers.
type picker interface {
	pick() int
	end(server int)
}

// load drives a picker in a steady state.
type load struct {
	picker
	// open are the servers of the open connections, in the order in which they
	// end.
	open []int
	next int
}

func newLoad(p picker, servers int) *load {
	l := &load{picker: p}
	for range 4 * servers {
		l.open = append(l.open, p.pick())
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	rnd.Shuffle(len(l.open), func(i, j int) { l.open[i], l.open[j] = l.open[j], l.open[i] })
	return l
}

// step begins a connection, ends an older one and returns who got the new one.
func (l *load) step() int {
	s := l.pick()
	l.end(l.open[l.next])
	l.open[l.next] = s
	if l.next++; l.next == len(l.open) {
		l.next = 0
	}
	return s
}

// newPicker makes a contender with that many servers. Their weights are the same
// for all contenders.
func newPicker(name, contender string, servers int) (picker, error) {
	rnd := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	scheduler := name
	if contender == list {
		// A table to count in, with a scheduler that cares for no counts.
		scheduler = "rr"
	}
	t, err := sched.New(scheduler, sched.Options{
		Rand: rand.NewPCG(5, 6),
		Now:  func() time.Duration { return time.Since(start) },
	})
	if err != nil {
		return nil, err
	}
	b := byTable{Table: t, servers: make([]*sched.Server, servers), packet: sched.Packet{
		Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("198.51.100.1"),
		SrcPort: 40000, DstPort: 80, Protocol: 6,
	}}
	for i := range servers {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
		b.servers[i] = sched.NewServer(uint32(i), addr, sched.Config{Weight: uint32(1 + rnd.IntN(10))})
		t.Insert(b.servers[i])
	}
	switch contender {
	case list:
		return &byList{byTable: b, load: loadOf(name)}, nil
	case array:
		return newByArray(name, b.servers), nil
	}
	return &b, nil
}

// byTable is what the engine does.
type byTable struct {
	*sched.Table
	servers []*sched.Server
	packet  sched.Packet
}

func (b *byTable) pick() int {
	// Hashes read the client: another for each connection.
	b.packet.SrcPort++
	return int(b.Pick(&b.packet, sched.Active).ID())
}

func (b *byTable) end(server int) { b.Count(b.servers[server], sched.Active, sched.Uncounted) }
