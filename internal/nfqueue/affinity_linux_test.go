package nfqueue

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

func processors(list ...int) (s unix.CPUSet) {
	for _, i := range list {
		s.Set(i)
	}
	return s
}

func TestPartOf(t *testing.T) {
	for _, tt := range []struct {
		set         unix.CPUSet
		part, parts int
		want        unix.CPUSet
	}{
		{processors(0, 1, 2, 3), 0, 2, processors(0, 2)},
		{processors(0, 1, 2, 3), 1, 2, processors(1, 3)},
		{processors(1, 3), 0, 2, processors()},
		{processors(0, 5, 1023), 1023 % 4, 4, processors(1023)},
		{processors(0, 1), 0, 1, processors(0, 1)},
	} {
		if got := partOf(&tt.set, tt.part, tt.parts); got != tt.want {
			t.Errorf("part %d of %d: want %v, got %v", tt.part, tt.parts, tt.want, got)
		}
	}
}

// TestNetnsRunProcessors keeps the handler to the processors of its part, and
// gives the thread back as it was.
func TestNetnsRunProcessors(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	ns := netnstest.New(t)
	u := newUDP(t, ns, "127.0.0.1", 1)
	rule{ns: ns}.add(t)
	affinity := func() (s unix.CPUSet) {
		if err := unix.SchedGetaffinity(0, &s); err != nil {
			t.Error(err)
		}
		return s
	}
	runtime.LockOSThread()
	before := affinity()
	runtime.UnlockOSThread()
	for part := range 2 {
		q := open(t, ns, Config{Part: part, Parts: 2})
		want := partOf(&before, part, 2)
		if want.Count() == 0 {
			want = before
		}
		seen := make(chan unix.CPUSet, 1)
		done := make(chan unix.CPUSet)
		go func() {
			runtime.LockOSThread() // so that it is the thread of Run
			defer runtime.UnlockOSThread()
			if err := q.Run(t.Context(), Each(func(p *Packet) Verdict { seen <- affinity(); return markAll(p) }), func() bool { return false }); err != nil {
				t.Error(err)
			}
			done <- affinity()
		}()
		expectMark(t, u, 0x101)
		if got := <-seen; got != want {
			t.Errorf("part %d: want processors %v, got %v", part, want, got)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		if got := <-done; got != before {
			t.Errorf("part %d: the thread is left on %v of %v", part, got, before)
		}
	}
}
