package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"testing"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// name identifies the thread's namespace.
func name(t *testing.T) string {
	t.Helper()
	s, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNetnsIn(t *testing.T) {
	netnstest.Require(t, "netns")
	other := netnstest.New(t)
	failed := errors.New("failed")
	for _, test := range []struct {
		what string
		fd   int
		here bool
	}{{"own", -1, true}, {"other", other.FD(), false}} {
		home := name(t)
		var inside string
		err := In(test.fd, func() error {
			inside = name(t)
			return failed
		})
		if !errors.Is(err, failed) {
			t.Errorf("%s: want the function's error, got %v", test.what, err)
		}
		if (inside == home) != test.here {
			t.Errorf("%s: from %s in %s", test.what, home, inside)
		}
		if after := name(t); after != home {
			t.Errorf("%s: want to be back in %s, got %s", test.what, home, after)
		}
	}
	if err := In(1<<20, func() error { return nil }); err == nil {
		t.Error("a descriptor that is not open: no error")
	}
}

// TestNetnsFresh sees loopback up, and the namespace left.
func TestNetnsFresh(t *testing.T) {
	netnstest.Require(t, "netns")
	home := name(t)
	var inside string
	err := Fresh(func() error {
		inside = name(t)
		lo, err := net.InterfaceByName("lo")
		if err == nil && lo.Flags&net.FlagUp == 0 {
			err = errors.New("lo is down")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if inside == home || name(t) != home {
		t.Errorf("from %s in %s, then %s", home, inside, name(t))
	}
}

// TestNetnsOpenName enters a namespace by its path. The sysnet package tests what
// is refused.
func TestNetnsOpenName(t *testing.T) {
	netnstest.Require(t, "netns")
	other := netnstest.New(t)
	ns, err := OpenName(fmt.Sprintf("/proc/self/fd/%d", other.FD()))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	home, inside := name(t), ""
	if err := ns.Do(func() error { inside = name(t); return nil }); err != nil {
		t.Fatal(err)
	}
	if inside == home {
		t.Errorf("want to be in another namespace than %s", home)
	}
	if _, err := OpenName("/nonexistent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("want not found, got %v", err)
	}
}
