package sched

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// Standings are what Peek decides by: the first with the least load is next.
func TestStandings(t *testing.T) {
	for _, i := range Schedulers() {
		t.Run(i.Name, func(t *testing.T) {
			now := time.Duration(0)
			table, err := New(i.Name, Options{Rand: rand.NewPCG(1, 2), Now: func() time.Duration { return now }})
			if err != nil {
				t.Fatal(err)
			}
			for n := range uint32(5) {
				addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 80)
				table.Insert(NewServer(n, addr, Config{Weight: n % 4}))
			}
			p := &Packet{Src: netip.MustParseAddr("198.51.100.1"), Dst: netip.MustParseAddr("192.0.2.1"), SrcPort: 1, DstPort: 80, Protocol: 6}
			counted := map[State]uint32{}
			for step := range 50 {
				list := table.Standings()
				best := -1
				for j, s := range list {
					if !s.Compared {
						continue
					}
					if s.Weight > 0 && (best < 0 || s.Load*uint64(list[best].Weight) < list[best].Load*uint64(s.Weight)) {
						best = j
					}
				}
				next := table.Peek(p)
				if best >= 0 && i.Name != "wlc-fair" && (next == nil || next.Address() != list[best].Address) {
					t.Fatalf("step %d: want %v next, got %v\n%+v", step, list[best].Address, next, list)
				}
				st := Active
				if step%3 == 0 {
					st = Inactive
				}
				if table.Pick(p, st) != nil {
					counted[st]++
				} else if next != nil {
					t.Fatalf("step %d: no server after all", step)
				}
				now += time.Second
			}
			var active, inactive uint32
			for _, s := range table.Standings() {
				active += s.Active
				inactive += s.Inactive
			}
			if active != counted[Active] || inactive != counted[Inactive] {
				t.Errorf("counts: want %v, got %d active and %d inactive", counted, active, inactive)
			}
			if want := i.Ties && i.Name != "p2c" || i.Name == "fo" || i.Name == "ovf" || i.Name == "wlc-fair"; table.Standings()[0].Compared != want {
				t.Errorf("compared: want %v", want)
			}
		})
	}
}
