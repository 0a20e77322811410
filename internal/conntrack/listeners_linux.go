package conntrack

import (
	"fmt"
	"os"
	"slices"

	"github.com/lbd-project/lbd/internal/netns"
)

// Listeners returns how many sockets of other programs in the network namespace
// fd (negative: the calling thread's) are in a group of conntrack events, as
// conntrackd and "conntrack -E" are. They would miss events of flows if
// net.netfilter.nf_conntrack_events were 0.
func Listeners(fd int) (int, error) {
	n, err := listeners(fd)
	if err != nil {
		return 0, fmt.Errorf("conntrack: find listeners: %w", err)
	}
	return n, nil
}

func listeners(fd int) (int, error) {
	var inodes []uint64
	err := netns.In(fd, func() error {
		// The thread's own directory; /proc/net shows the main thread's namespace.
		f, err := os.Open("/proc/thread-self/net/netlink")
		if err != nil {
			return err
		}
		defer f.Close()
		inodes, err = parseListeners(f)
		return err
	})
	if err != nil || len(inodes) == 0 {
		return 0, err
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	for _, fd := range fds {
		link, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err != nil {
			continue // Closed meanwhile.
		}
		var inode uint64
		if _, err := fmt.Sscanf(link, "socket:[%d]", &inode); err == nil {
			inodes = slices.DeleteFunc(inodes, func(i uint64) bool { return i == inode })
		}
	}
	return len(inodes), nil
}
