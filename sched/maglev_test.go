package sched

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pgregory.net/rapid"
)

// TestMaglevMoves removes one of the servers: its own clients move, which are
// about 1/N of all, and few others: they grow with the number of servers, for 50
// they are 2.2 percent of all.
func TestMaglevMoves(t *testing.T) {
	const keys = 20000
	for _, n := range []int{3, 5, 10, 20, 50} {
		f := newFleet(t, "mh", Options{}, sameWeights(n)...)
		own, others := f.moved(keys, f.servers[n/2])
		share := keys / n
		// The table has 4093 slots, so a server has about 4093/N of them.
		if own < share*85/100 || own > share*115/100 {
			t.Errorf("%d servers: %d of %d clients were the removed one's, want about %d", n, own, keys, share)
		}
		t.Logf("%d servers: 1/N is %d of %d; %d moved with their server, %d others too", n, share, keys, own, others)
		if others > keys*3/100 {
			t.Errorf("%d servers: %d other clients moved, want at most %d", n, others, keys*3/100)
		}
	}
}

func sameWeights(n int) []Config {
	c := make([]Config, n)
	for i := range c {
		c[i].Weight = 1
	}
	return c
}

// moved removes s and counts the clients that changed servers: those of s, and
// others.
func (f *fleet) moved(keys int, s *Server) (own, others int) {
	before := f.owners(keys)
	f.Remove(s)
	for n, now := range f.owners(keys) {
		switch {
		case before[n] == s:
			own++
		case before[n] != now:
			others++
		}
	}
	return own, others
}

// TestMaglevShares gives slots in proportion to the weights.
func TestMaglevShares(t *testing.T) {
	for _, tt := range []struct {
		name    string
		weights []uint32
		want    []int // turns' sizes: after the divisor and the shift
	}{
		{"equal", []uint32{5, 5, 5}, []int{1, 1, 1}},
		{"divisor", []uint32{10, 20, 30}, []int{1, 2, 3}},
		{"63 needs no shift", []uint32{63, 1}, []int{63, 1}},
		{"64 is shifted by one", []uint32{64, 32, 3}, []int{32, 16, 1}},
		{"never shifted to nothing", []uint32{65535, 1}, []int{63, 1}},
		{"weight 0 has none", []uint32{2, 0, 1}, []int{2, 0, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t, "mh", Options{}, weights(tt.weights...)...)
			f.Peek(&Packet{})
			slots := f.sched.(*hashed).table.(*maglev).slots
			got := map[*Server]int{}
			for _, s := range slots {
				got[s]++
			}
			turn := 0
			for _, n := range tt.want {
				turn += n
			}
			rounds := maglevSize / turn
			for i, n := range tt.want {
				if c := got[f.servers[i]]; c < n*rounds || c > n*(rounds+1) {
					t.Errorf("%s has %d slots, want %d to %d", call(f.servers[i]), c, n*rounds, n*(rounds+1))
				}
			}
		})
	}
}

// TestMaglevLastWeight: a server that was added with weight 0 has no slots, one
// whose weight became 0 keeps them, and one added again starts afresh.
func TestMaglevLastWeight(t *testing.T) {
	f := newFleet(t, "mh", Options{}, weights(1, 0)...)
	a, b := f.servers[0], f.servers[1]
	served := func() (refused int) {
		for n := range 400 {
			if f.Pick(numbered(n), Uncounted) == nil {
				refused++
			}
		}
		return refused
	}
	if got := served(); got != 0 {
		t.Errorf("added with weight 0: %d of 400 refused, want none", got)
	}
	f.Update(b, Config{Weight: 1})
	f.Update(b, Config{})
	if got := served(); got < 100 || got > 300 {
		t.Errorf("weight became 0: %d of 400 refused, want about 200", got)
	}
	f.Remove(b)
	f.Insert(b)
	if got := served(); got != 0 {
		t.Errorf("added again with weight 0: %d of 400 refused, want none", got)
	}
	f.Remove(a)
	if got := served(); got != 400 {
		t.Errorf("only a server without a weight: %d of 400 refused, want all", got)
	}
}

// TestMaglevReset: the weights before a failure count though another scheduler
// was in use then.
func TestMaglevReset(t *testing.T) {
	f := newFleet(t, "wlc", Options{}, weights(1, 1)...)
	f.Update(f.servers[1], Config{})
	if err := f.Reset("mh", Options{}); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for n := range 400 {
		if f.Pick(numbered(n), Uncounted) == nil {
			refused++
		}
	}
	if refused < 100 || refused > 300 {
		t.Errorf("%d of 400 refused, want about 200", refused)
	}
}

// TestMaglevWalks compares the table with one made by the definition: in turns
// each server claims the first free slot of its permutation
// offset + n*skip mod 4093.
func TestMaglevWalks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := rapid.SliceOfN(rapid.Uint32Range(0, 70000), 1, 12).Draw(rt, "weights")
		f := newFleet(t, "mh", Options{}, weights(w...)...)
		f.Peek(&Packet{})
		got := f.sched.(*hashed).table.(*maglev).slots
		turns := maglevTurns(nil, f.servers)
		if len(turns) == 0 {
			for i, s := range got {
				if s != nil {
					rt.Fatalf("slot %d is %s's, all weights are 0", i, call(s))
				}
			}
			return
		}
		want := make(map[uint32]*Server)
		walked := make([]uint64, len(turns))
		for len(want) < maglevSize {
			for i, turn := range turns {
				for n := uint32(0); n < turn.slots && len(want) < maglevSize; walked[i]++ {
					slot := uint32((uint64(turn.next) + walked[i]*uint64(turn.skip)) % maglevSize)
					if want[slot] == nil {
						want[slot] = f.servers[i]
						n++
					}
				}
			}
		}
		for i, s := range got {
			if s != want[uint32(i)] {
				rt.Fatalf("slot %d is %s's, want %s", i, call(s), call(want[uint32(i)]))
			}
		}
	})
}

// TestMaglevVectors pins the table: walks and clients computed by another
// implementation of SipHash-1-3 and of the definition, and found to be the
// kernel's in internal/oracle.
func TestMaglevVectors(t *testing.T) {
	f := newFleet(t, "mh", Options{Fallback: true}, weights(1, 1, 1)...)
	want := []maglevTurn{{1035, 3096, 1}, {3167, 700, 1}, {1231, 3544, 1}}
	if diff := cmp.Diff(want, maglevTurns(nil, f.servers), cmp.AllowUnexported(maglevTurn{})); diff != "" {
		t.Errorf("walks (-want +got):\n%s", diff)
	}
	var packets []*Packet
	for n := range 40 {
		packets = append(packets, client(fmt.Sprintf("100.0.0.%d", n), 0))
	}
	if want, got := "AAACCBBAABABBBCBABBCABACBCBACCABAABCCBAA", f.ask(packets...); got != want {
		t.Errorf("want %s, got %s", want, got)
	}
	f.Update(f.servers[1], Config{})
	if want, got := "AAACCCAAACACCACCACACACACCCAACCAAAACCCAAA", f.ask(packets...); got != want {
		t.Errorf("B at weight 0: want %s, got %s", want, got)
	}
}
