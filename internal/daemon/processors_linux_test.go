package daemon

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// What the process may have changes while one processor is used, as by a quota or,
// here, by an affinity: the number afterwards is the new one.
func TestProcessorsFollow(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	runtime.SetDefaultGOMAXPROCS()
	defer runtime.SetDefaultGOMAXPROCS()
	full := runtime.GOMAXPROCS(0)
	few, many := large(&fakeNet{}, 1), large(&fakeNet{}, 201)
	p := newProcessors(0)
	p.suit(just(few))

	// The runtime asks for the affinity of the thread that it is on.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for i := range 1024 {
		if all.IsSet(i) {
			one.Set(i)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	p.suit(just(many))
	got := runtime.GOMAXPROCS(0)
	if err := unix.SchedSetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if got != 1 {
		t.Errorf("want 1, as the affinity says, got %d", got)
	}
	runtime.SetDefaultGOMAXPROCS()
	p.restore()
	if got := runtime.GOMAXPROCS(0); got != full {
		t.Errorf("in the end: want %d, got %d", full, got)
	}
}
