package sched

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// client returns a packet of a client to a virtual address.
func client(src string, port uint16) *Packet {
	return &Packet{
		Src: netip.MustParseAddr(src), SrcPort: port,
		Dst: netip.MustParseAddr("192.0.2.1"), DstPort: 80,
		Protocol: protoTCP,
	}
}

// numbered returns a packet of the nth client.
func numbered(n int) *Packet {
	a := netip.AddrFrom4([4]byte{100, byte(n >> 16), byte(n >> 8), byte(n)})
	return &Packet{
		Src: a, SrcPort: uint16(1024 + n%60000),
		Dst: a, DstPort: 80,
		Protocol: protoTCP,
	}
}

// ask names the servers of packets.
func (f *fleet) ask(packets ...*Packet) string {
	var b strings.Builder
	for _, p := range packets {
		b.WriteString(call(f.Pick(p, Uncounted)))
	}
	return b.String()
}

// clients are 0.0.0.0 to 0.0.0.6, whose buckets of 256 are worked out by hand:
// the top byte of n * 0x61C88647.
func clients() []*Packet {
	var p []*Packet
	for n := range 7 {
		p = append(p, client(fmt.Sprintf("0.0.0.%d", n), 0))
	}
	return p
}

// TestSourceHash deals the buckets out by weight. The buckets of the clients are
// 0, 97, 195, 37, 135, 232, 74.
func TestSourceHash(t *testing.T) {
	for _, tt := range []struct {
		name    string
		opt     Options
		configs []Config
		want    string
	}{
		{"none", Options{}, nil, "-------"},
		{"one", Options{}, weights(3), "AAAAAAA"},
		// A B A B …: even and odd buckets.
		{"equal", Options{}, weights(1, 1), "ABBBBAA"},
		// A A B A A B …: the remainders of 3 are 0 1 0 1 0 1 2.
		{"weights", Options{}, weights(2, 1), "AAAAAAB"},
		// A weight of 0 has one bucket as well, and its clients are refused.
		{"weight 0", Options{}, weights(1, 0), "A----AA"},
		// Fallback looks from twice the bucket on: always even, always A.
		{"fallback", Options{Fallback: true}, weights(1, 0), "AAAAAAA"},
		{"fallback, none left", Options{Fallback: true}, weights(0, 0), "-------"},
		// A B C A B C …, C gone: C's client, bucket 74, goes on from 148, an B.
		{"fallback of three", Options{Fallback: true}, weights(1, 1, 0), "ABABABB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t, "sh", tt.opt, tt.configs...)
			if got := f.ask(clients()...); got != tt.want {
				t.Errorf("want %s, got %s", tt.want, got)
			}
		})
	}
}

// TestSourceHashPort adds the port to the address, of protocols that have ports.
func TestSourceHashPort(t *testing.T) {
	f := newFleet(t, "sh", Options{Port: true}, weights(1, 1)...)
	for n, want := range []string{"A", "B", "B", "B", "B", "A", "A"} {
		p := client("0.0.0.0", uint16(n))
		for _, proto := range []uint8{protoTCP, protoUDP, protoSCTP} {
			p.Protocol = proto
			if got := f.ask(p); got != want {
				t.Errorf("protocol %d, port %d: want %s, got %s", proto, n, want, got)
			}
		}
		p.Protocol = 50
		if got := f.ask(p); got != "A" {
			t.Errorf("a protocol without ports, port %d: want A, got %s", n, got)
		}
	}
}

// TestDestinationHash ignores weights but 0, and clients.
func TestDestinationHash(t *testing.T) {
	to := clients()
	for _, p := range to {
		p.Src, p.Dst = p.Dst, p.Src
	}
	f := newFleet(t, "dh", Options{Fallback: true, Port: true}, weights(7, 1)...)
	if want, got := "ABBBBAA", f.ask(to...); got != want {
		t.Errorf("want %s, got %s", want, got)
	}
	f.Update(f.servers[1], Config{})
	if want, got := "A----AA", f.ask(to...); got != want {
		t.Errorf("weight 0: want %s, got %s", want, got)
	}
	f.Remove(f.servers[1])
	if want, got := "AAAAAAA", f.ask(to...); got != want {
		t.Errorf("removed: want %s, got %s", want, got)
	}
}

// TestHashOverload refuses the clients of an overloaded server, or sends them on.
func TestHashOverload(t *testing.T) {
	for _, name := range []string{"sh", "mh"} {
		for _, fallback := range []bool{false, true} {
			f := newFleet(t, name, Options{Fallback: fallback}, Config{Weight: 1, Upper: 1}, Config{Weight: 1})
			n := 0
			for n < 100 && f.Peek(numbered(n)) != f.servers[0] {
				n++
			}
			p := numbered(n)
			if first := f.Pick(p, Active); first != f.servers[0] || !first.Overloaded() {
				t.Fatalf("%s: %s, overloaded %v; want A, overloaded", name, call(first), first.Overloaded())
			}
			want := "-"
			if fallback {
				want = "B"
			}
			if got := f.ask(p); got != want {
				t.Errorf("%s, fallback %v: want %s, got %s", name, fallback, want, got)
			}
		}
	}
}

// TestHashWeightZero: without the fallback flag the clients of a server at
// weight 0 are refused though others are healthy; with it nobody is.
func TestHashWeightZero(t *testing.T) {
	for _, name := range []string{"sh", "mh", "ring"} {
		for _, fallback := range []bool{false, true} {
			f := newFleet(t, name, Options{Fallback: fallback}, weights(1, 1, 1, 1)...)
			before := f.owners(2000)
			f.Update(f.servers[2], Config{})
			refused, moved := 0, 0
			for n, owner := range before {
				s := f.Pick(numbered(n), Uncounted)
				switch {
				case s == nil && owner == f.servers[2]:
					refused++
				case s != owner && owner != f.servers[2]:
					t.Fatalf("%s: client %d of %s went to %s", name, n, call(owner), call(s))
				case s == f.servers[2]:
					t.Fatalf("%s: client %d went to a server at weight 0", name, n)
				case s != owner:
					moved++
				}
			}
			if name == "ring" || fallback {
				if refused != 0 || moved < 2000/4/2 {
					t.Errorf("%s, fallback %v: %d refused, %d moved; want none refused, about 500 moved", name, fallback, refused, moved)
				}
			} else if refused < 2000/4/2 || moved != 0 {
				t.Errorf("%s, fallback %v: %d refused, %d moved; want about 500 refused, none moved", name, fallback, refused, moved)
			}
			// It recovers: everybody is back.
			f.Update(f.servers[2], Config{Weight: 1})
			for n, owner := range before {
				if s := f.Pick(numbered(n), Uncounted); s != owner {
					t.Fatalf("%s: client %d of %s is now with %s", name, n, call(owner), call(s))
				}
			}
		}
	}
}

// owners picks for clients 0 to n-1.
func (f *fleet) owners(n int) []*Server {
	out := make([]*Server, n)
	for i := range out {
		out[i] = f.Pick(numbered(i), Uncounted)
	}
	return out
}

// TestHashOnePort: clients that all use one source port spread over the servers,
// also where the port is hashed (github.com/Nordix/nfqueue-loadbalancer, issue
// 19, was SCTP hashed on ports only).
func TestHashOnePort(t *testing.T) {
	for _, name := range []string{"sh", "mh", "ring"} {
		for _, port := range []bool{false, true} {
			f := newFleet(t, name, Options{Port: port}, weights(1, 1, 1, 1)...)
			got := map[*Server]int{}
			for n := range 1000 {
				p := numbered(n)
				p.Protocol, p.SrcPort = protoSCTP, 5000
				got[f.Pick(p, Uncounted)]++
			}
			for _, s := range f.servers {
				if got[s] < 150 {
					t.Errorf("%s, port %v: %d of 1000 clients on %s", name, port, got[s], call(s))
				}
			}
		}
	}
}

// TestHashIdempotent: the same packet has the same server while the set is
// unchanged, however many connections there are and in whatever order.
func TestHashIdempotent(t *testing.T) {
	for _, name := range []string{"sh", "dh", "mh", "ring"} {
		for _, o := range []Options{{}, {Port: true}, {Fallback: true}, {Port: true, Fallback: true}} {
			f := newFleet(t, name, o, weights(3, 1, 0, 2)...)
			before := f.owners(500)
			for n := len(before) - 1; n >= 0; n-- {
				if s := f.Peek(numbered(n)); s != before[n] {
					t.Fatalf("%s: Peek of client %d is %s, want %s", name, n, call(s), call(before[n]))
				}
				if s := f.Pick(numbered(n), Active); s != before[n] {
					t.Fatalf("%s: client %d went to %s, then to %s", name, n, call(before[n]), call(s))
				}
			}
		}
	}
}

// TestHashV6 folds the words of an address: these two fold to the same.
func TestHashV6(t *testing.T) {
	for _, name := range []string{"sh", "mh"} {
		f := newFleet(t, name, Options{}, weights(1, 1, 1, 1, 1)...)
		for n := range 100 {
			v6 := netip.MustParseAddr(fmt.Sprintf("2001:db8:2001:db8::6400:%x", n))
			a, b := f.Pick(&Packet{Src: v6}, Uncounted), f.Pick(&Packet{Src: netip.AddrFrom4([4]byte{100, 0, 0, byte(n)})}, Uncounted)
			if a != b {
				t.Errorf("%s: %v went to %s, want %s", name, v6, call(a), call(b))
			}
		}
	}
}

// TestHashAllocations: picks allocate nothing once the table is made.
func TestHashAllocations(t *testing.T) {
	for _, name := range []string{"sh", "dh", "mh", "ring"} {
		f := newFleet(t, name, Options{Port: true, Fallback: true}, weights(1, 0, 2)...)
		p := numbered(0)
		n := 0
		got := testing.AllocsPerRun(1000, func() {
			n++
			p.SrcPort = uint16(n)
			f.Pick(p, Active)
			if n%50 == 0 {
				f.Update(f.servers[2], Config{Weight: uint32(n/50%3 + 1)})
			}
		})
		if got != 0 {
			t.Errorf("%s: %v allocations a pick, want 0", name, got)
		}
	}
}
