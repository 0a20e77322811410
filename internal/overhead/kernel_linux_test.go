package overhead_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/overhead"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// known are kernels whose overhead was read in their sources: Debian 12's last
// with the old one, and newer ones.
var known = []struct {
	release string
	want    sched.Overhead
}{
	{"6.1.0-50-cloud-amd64", sched.OverheadInactive}, // 6.1.176
	{"6.1.0-57-cloud-amd64", sched.OverheadTotal},    // 6.1.192
	{"6.12.117+deb", sched.OverheadTotal},
}

// TestKernelOverheadProbe asks the kernel three times: the answer is always the
// same, the known one of a known kernel, and takes a moment only. The table of
// the caller's namespace stays as it is.
func TestKernelOverheadProbe(t *testing.T) {
	netnstest.Require(t, "netns", "ipvs")
	ns := netnstest.New(t)
	c, err := ipvs.Open(ipvs.WithNetNS(ns.FD()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		begin := time.Now()
		var got sched.Overhead
		err := ns.Do(func() (err error) {
			got, err = overhead.Probe(t.Context())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v, in %v", strings.TrimSpace(string(release)), got, time.Since(begin).Round(time.Millisecond))
		found := false
		for _, k := range known {
			if strings.HasPrefix(string(release), k.release) {
				found = true
				if got != k.want {
					t.Errorf("probe %d: want %v, got %v", i, k.want, got)
				}
			}
		}
		if !found {
			t.Logf("the overhead of this kernel is not known otherwise")
		}
	}
	table, err := c.Table(t.Context())
	if err != nil || table != nil {
		t.Errorf("table of the caller: %v, %v; want it empty", table, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := overhead.Probe(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("done context: want %v, got %v", context.Canceled, err)
	}
}
