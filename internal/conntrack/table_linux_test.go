package conntrack

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/flow"
)

// flood makes one-way UDP flows from the client to both VIPs' port 80, half
// each, all confirmed when it returns.
func (l *lab) flood(n int) {
	l.t.Helper()
	for i, src := range []string{client4, client6} {
		vip := []string{vip4, vip6}[i]
		half := n / 2
		if i == 1 {
			half = n - n/2
		}
		l.floodFrom(src, vip, half)
	}
}

// floodFrom sends n datagrams from as many ports and waits until the balancer has
// their flows. A busy kernel handles later what was sent, and would drop what is too
// much at a time.
func (l *lab) floodFrom(src, vip string, n int) {
	l.t.Helper()
	const most = 100
	for ; n > 0; n -= most {
		want := l.entries() + min(n, most)
		l.send(src, vip, min(n, most))
		// Entries of earlier may go meanwhile: that is no reason to fail.
		for end := time.Now().Add(5 * time.Second); l.entries() < want && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
}

// entries is how many the balancer's connection tracking has, also of those whose
// time is over.
func (l *lab) entries() int {
	l.t.Helper()
	n, err := strconv.Atoi(l.lb.Sysctl("net.netfilter.nf_conntrack_count"))
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

// send sends n datagrams from as many ports.
func (l *lab) send(src, vip string, n int) {
	l.t.Helper()
	family, to := unix.AF_INET, unix.Sockaddr(nil)
	addr := netip.MustParseAddr(vip)
	to = &unix.SockaddrInet4{Port: 80, Addr: [4]byte{}}
	if addr.Is4() {
		to = &unix.SockaddrInet4{Port: 80, Addr: addr.As4()}
	} else {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: 80, Addr: addr.As16()}
	}
	err := l.client.Do(func() error {
		for range n {
			// A new socket is a new port; the port of one that was closed comes again
			// rarely enough for no test to mind.
			fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			for {
				if err = unix.Sendto(fd, []byte("x"), 0, to); err != unix.EAGAIN && err != unix.ENOBUFS {
					break
				}
			}
			l.t.Cleanup(func() { unix.Close(fd) })
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

func TestNetnsDump(t *testing.T) {
	l := newLab(t)
	l.rules(ruleset(markThenEvents))
	tab := l.table()
	if got := l.dump(tab, Filter{Mark: 0x100, MarkMask: 0xfffff00}); len(got) != 0 {
		t.Errorf("want nothing, got %s", list(got))
	}
	const flows = 1000 // More than fit in one piece of a dump.
	l.flood(flows)
	// Two that are not ours.
	l.client.AddRoute("10.0.0.0/24", "192.0.2.1")
	l.floodFrom(client4, server4, 1)
	for _, test := range []struct {
		name string
		f    Filter
		want int
	}{
		{"all", Filter{}, flows + 1},
		{"mark", Filter{Mark: 0x100, MarkMask: 0xfffff00}, flows},
		{"mark and family", Filter{Family: unix.AF_INET6, Mark: 0x100, MarkMask: 0xfffff00}, flows / 2},
		{"another mark", Filter{Mark: 0x200, MarkMask: 0xfffff00}, 0},
		{"no mark", Filter{Family: unix.AF_INET, MarkMask: 0xfffff00}, 1},
		{"status", Filter{Status: StatusDstNAT, StatusMask: StatusDstNAT}, flows},
		{"status unset", Filter{Family: unix.AF_INET, StatusMask: StatusDstNAT}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			seen := make(map[flow.Tuple]bool)
			for _, ev := range l.dump(tab, test.f) {
				seen[ev.Orig] = true
				if ev.Kind != New || ev.Timeout <= 0 || ev.Timeout > 30*time.Second || ev.ID == 0 || !ev.Counted {
					t.Errorf("entry %+v", ev)
				}
			}
			if len(seen) != test.want {
				t.Errorf("want %d entries, got %d", test.want, len(seen))
			}
		})
	}
	if err := tab.Dump(t.Context(), Filter{Family: 7}, func(*Event) {}); err == nil {
		t.Error("a bad filter: want an error")
	}
}

// TestNetnsDumpCancelled gives up in the middle. The table goes on to work, and
// no late answer is taken for another's.
func TestNetnsDumpCancelled(t *testing.T) {
	l := newLab(t)
	l.rules(ruleset(markThenEvents))
	tab := l.table()
	const flows = 1000
	l.flood(flows)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		var seen int
		err := tab.Dump(ctx, Filter{Mark: 0x100, MarkMask: 0xfffff00}, func(*Event) { seen++; cancel() })
		if !errors.Is(err, context.Canceled) || seen == 0 || seen >= flows {
			t.Errorf("want %v after some entries, got %v after %d", context.Canceled, err, seen)
		}
		if got := l.dump(tab, Filter{Mark: 0x100, MarkMask: 0xfffff00}); len(got) != flows {
			t.Errorf("want %d entries, got %d", flows, len(got))
		}
	}
}

func TestNetnsDelete(t *testing.T) {
	l := newLab(t)
	l.rules(ruleset(markThenEvents))
	tab := l.table()
	l.flood(20)
	l.client.AddRoute("10.0.0.0/24", "192.0.2.1")
	l.floodFrom(client4, server4, 3)
	remove := func(f Filter) {
		t.Helper()
		if err := tab.Delete(t.Context(), f); err != nil {
			t.Error(err)
		}
	}
	left := func(want int) {
		t.Helper()
		if got := l.dump(tab, Filter{}); len(got) != want {
			t.Errorf("want %d entries left, got %d", want, len(got))
		}
	}
	for _, f := range []Filter{{}, {Family: unix.AF_INET}, {Mark: 0x100}, {Status: StatusDstNAT, StatusMask: StatusDstNAT}} {
		if err := tab.Delete(t.Context(), f); err == nil {
			t.Errorf("%+v: want an error", f)
		}
	}
	left(23)
	remove(Filter{Mark: 0x200, MarkMask: 0xfffff00})
	left(23)
	remove(Filter{Family: unix.AF_INET6, Mark: 0x100, MarkMask: 0xfffff00})
	left(13)
	remove(Filter{Mark: 0x100, MarkMask: 0xfffff00})
	left(3)
}

func TestNetnsDeleteFlow(t *testing.T) {
	for _, test := range []struct{ network, addr string }{
		{"tcp", vip4 + ":80"}, {"udp", vip4 + ":80"}, {"tcp", "[" + vip6 + "]:80"}, {"udp", "[" + vip6 + "]:80"},
	} {
		t.Run(test.network+test.addr, func(t *testing.T) {
			l := newLab(t)
			l.echo()
			l.rules(ruleset(markThenEvents))
			tab := l.table()
			l.dial(test.network, test.addr)
			l.dial(test.network, test.addr)
			all := l.dump(tab, Filter{Mark: 0x100, MarkMask: 0xfffff00})
			if len(all) != 2 {
				t.Fatalf("want 2 entries, got %s", list(all))
			}
			first := all[0]
			err := tab.DeleteFlow(t.Context(), first.Orig, first.ID^1)
			if !errors.Is(err, ErrNotFound) || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("another id: want %v, got %v", ErrNotFound, err)
			}
			if err := tab.DeleteFlow(t.Context(), first.Orig, first.ID); err != nil {
				t.Error(err)
			}
			if err := tab.DeleteFlow(t.Context(), first.Orig, first.ID); !errors.Is(err, ErrNotFound) {
				t.Errorf("again: want %v, got %v", ErrNotFound, err)
			}
			if err := tab.DeleteFlow(t.Context(), flow.Tuple{}, 0); !errors.Is(err, ErrUnboundFlush) {
				t.Errorf("no flow: want %v, got %v", ErrUnboundFlush, err)
			}
			left := l.dump(tab, Filter{})
			if len(left) != 1 || left[0].Orig != all[1].Orig {
				t.Errorf("want the other entry left, got %s", list(left))
			}
			if err := tab.DeleteFlow(t.Context(), all[1].Orig, 0); err != nil {
				t.Errorf("any id: %v", err)
			}
		})
	}
}

func TestNetnsStats(t *testing.T) {
	l := newLab(t)
	l.rules(ruleset(markThenEvents))
	tab := l.table()
	l.flood(10)
	st, err := tab.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if st.Entries != 10 || st.Max == 0 || st.Drop != 0 {
		t.Errorf("want 10 entries, a maximum and no drop, got %+v", st)
	}
}
