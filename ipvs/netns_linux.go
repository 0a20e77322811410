package ipvs

import (
	"os"

	"github.com/lbd-project/lbd/internal/netns"
)

// netNS opens files in a network namespace.
type netNS struct{ *netns.NS }

func (ns netNS) close() error { return ns.Close() }

// open opens a file of /proc/net. The thread's own directory is the one that
// shows the thread's namespace; /proc/net shows the main thread's.
func (ns netNS) open(name string) (f procFile, err error) {
	err = ns.Do(func() error {
		f, err = os.Open("/proc/thread-self/net/" + name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}
