package overhead_test

import (
	"errors"
	"os"
	"testing"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/overhead"
	"github.com/lbd-project/lbd/ipvs"
)

// TestNetnsOverheadProbe: a host without IPVS says so, and the caller's thread is
// where it was.
func TestNetnsOverheadProbe(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	err := ns.Do(func() error {
		before, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		if _, err := overhead.Probe(t.Context()); err != nil && !errors.Is(err, ipvs.ErrNotAvailable) {
			t.Errorf("want an answer or %v, got %v", ipvs.ErrNotAvailable, err)
		}
		after, err := os.Readlink("/proc/thread-self/ns/net")
		if before != after {
			t.Errorf("namespace of the thread: %s, then %s", before, after)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
