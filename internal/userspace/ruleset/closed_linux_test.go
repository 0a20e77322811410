package ruleset

import (
	"io"
	"maps"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/conntrack"
)

// closed are the counts that Closed tells.
func (l *lab) closed() map[uint32]uint64 {
	l.t.Helper()
	got := map[uint32]uint64{}
	if err := l.rules.Closed(func(m uint32, n uint64, _ bool) { got[m] += n }); err != nil {
		l.t.Fatal(err)
	}
	return got
}

// TestNetnsClosed closes connections in each way and counts them, and nothing
// else.
func TestNetnsClosed(t *testing.T) {
	eachWay(t, Options{}, bothVersions(), func(t *testing.T, l *lab) {
		want := map[uint32]uint64{mark1: 0, mark2: 0, mark3: 0, mark4: 0}
		if got := l.closed(); !cmp.Equal(want, got) {
			t.Fatalf("at first (-want +got)\n%s", cmp.Diff(want, got))
		}
		inactive := func(e *conntrack.Event) bool { return e.Mark&l.rules.opts.Inactive() != 0 }
		for _, addr := range addresses {
			for range 3 {
				open, _ := l.dial("tcp", addr)
				if err := echo(open, waitTime); err != nil {
					t.Fatal(err)
				}
				half, _ := l.dial("tcp", addr)
				half.(interface{ CloseWrite() error }).CloseWrite()
				want[l.flowOf(half.LocalAddr(), inactive).Mark&DefaultMask]++
				// The server closes as well, which is the second FIN.
				if _, err := io.Copy(io.Discard, half); err != nil {
					t.Fatal(err)
				}
				cut, _ := l.dial("tcp", addr)
				reset(t, cut)
				want[l.flowOf(cut.LocalAddr(), inactive).Mark&DefaultMask]++
				l.dial("udp", addr)
			}
		}
		if got := l.closed(); !cmp.Equal(want, got) {
			t.Errorf("(-want +got)\n%s", cmp.Diff(want, got))
		}
		// An edit of others leaves the counts; dead real servers have theirs, new
		// ones begin at 0, and deleted ones have none.
		s := bothVersions()
		s.Services[0].Fallback, s.Dead = s.Services[0].Fallback[:1], []uint32{mark2}
		s.Servers[3].Mark = 99 << 8
		s.Services[1].Fallback, s.Services[3].Fallback = []Share{{mark3, 1}}, []Share{{mark3, 1}}
		l.apply(s)
		delete(want, mark4)
		want[99<<8] = 0
		if got := l.closed(); !cmp.Equal(want, got) {
			t.Errorf("after an edit (-want +got)\n%s", cmp.Diff(want, got))
		}
		if ok, err := l.rules.Intact(t.Context()); !ok || err != nil {
			t.Errorf("intact: %v, %v", ok, err)
		}
	})
}

// TestNetnsOutgrown adds more real servers than the counted sets have room for:
// everything is written again, which Renews tells, and what comes after is
// counted. A later process has other sizes, and takes over.
func TestNetnsOutgrown(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	s := bothVersions()
	l.apply(s)
	one := func() {
		t.Helper()
		inactive := func(e *conntrack.Event) bool { return e.Mark&l.rules.opts.Inactive() != 0 }
		c, _ := l.dial("tcp", addresses[0])
		reset(t, c)
		l.flowOf(c.LocalAddr(), inactive)
	}
	one()
	for _, n := range []int{minRoom / 2, minRoom/2 + 1, 3 * minRoom} {
		for len(s.Servers) < n+2 { // two are IPv6
			i := len(s.Servers)
			s.Servers = append(s.Servers, Server{Mark: uint32(1000+i) << 8, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 7, 0, byte(i)}), 80), Quiet: true})
		}
		renews := n > minRoom/2
		if got := l.rules.Renews(&s); got != renews {
			t.Errorf("%d real servers: want renewal %v, got %v", n, renews, got)
		}
		l.apply(s)
		if ok, err := l.rules.Intact(t.Context()); !ok || err != nil {
			t.Errorf("intact: %v, %v", ok, err)
		}
		if l.rules.Renews(&s) {
			t.Errorf("%d real servers: they are renewed for ever", n)
		}
		one()
		closed, want := l.closed(), uint64(1)
		if !renews {
			want = 2
		}
		if got := closed[mark1] + closed[mark2]; len(closed) != len(s.Servers) || got != want {
			t.Errorf("%d real servers: want %d closed connections, got %d of %d", n, want, got, len(closed))
		}
	}
	l.open(Options{FailOpen: true})
	l.apply(bothVersions())
	one()
	closed := l.closed()
	if got := closed[mark1] + closed[mark2]; len(closed) != 4 || got != 1 {
		t.Errorf("the next process: want 1 closed connection, got %v", closed)
	}
}

// TestNetnsClosedWithout reads where there are no tables, where another program
// has emptied the set, and after an answer that was given up.
func TestNetnsClosedWithout(t *testing.T) {
	r := openEmpty(t, Options{FailOpen: true})
	read := func() map[uint32]uint64 {
		t.Helper()
		got := map[uint32]uint64{}
		if err := r.Closed(func(m uint32, n uint64, _ bool) { got[m] += n }); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := read(); len(got) != 0 {
		t.Errorf("without tables: %v", got)
	}
	s := many(500, 20)
	if err := r.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want := map[uint32]uint64{}
	for i := range s.Servers {
		want[s.Servers[i].Mark] = 0
	}
	if got := read(); !maps.Equal(want, got) {
		t.Errorf("10,000 real servers: want each once, got %d", len(got))
	}
	// An answer of many datagrams of which one was read.
	r.counters.dirty = true
	if err := r.counters.send(r.counters.closing[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := r.counters.receive(); err != nil {
		t.Fatal(err)
	}
	if got := read(); !maps.Equal(want, got) {
		t.Errorf("after an answer that was given up: got %d", len(got))
	}
	nft(t, r, "flush chain ip lbd ending; delete set ip lbd closing")
	if got := read(); len(got) != 0 {
		t.Errorf("without the set: %v", got)
	}
}

// TestNetnsClosedUnderApply reads while everything changes.
func TestNetnsClosedUnderApply(t *testing.T) {
	r := openEmpty(t, Options{FailOpen: true})
	s := many(50, 20)
	if err := r.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	var applied atomic.Int32
	go func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			s.Servers[0].Address = s.Servers[i%2+1].Address
			if err := r.Apply(t.Context(), s); err != nil {
				done <- err
				return
			}
			applied.Add(1)
		}
	}()
	last := map[uint32]uint64{}
	for reads := 0; reads < 100 || applied.Load() < 10; reads++ {
		if err := r.Closed(func(m uint32, n uint64, _ bool) { last[m] = n }); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
	}
	close(stop)
	if err := <-done; err != nil || len(last) != len(s.Servers) {
		t.Errorf("%d real servers, %v", len(last), err)
	}
}

func TestNetnsClosedAllocates(t *testing.T) {
	r := openEmpty(t, Options{FailOpen: true})
	if err := r.Apply(t.Context(), bothVersions()); err != nil {
		t.Fatal(err)
	}
	sum := uint64(0)
	visit := func(_ uint32, n uint64, _ bool) { sum += n }
	n := testing.AllocsPerRun(100, func() {
		if err := r.Closed(visit); err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("want no allocation, got %v", n)
	}
}

func BenchmarkNetnsClosed(b *testing.B) {
	for name, s := range map[string]Spec{"4": bothVersions(), "20": many(1, 20), "1000": many(50, 20)} {
		b.Run(name, func(b *testing.B) {
			r := openEmpty(b, Options{FailOpen: true})
			if err := r.Apply(b.Context(), s); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Closed(func(uint32, uint64, bool) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
