package nfqueue

import (
	"fmt"
	"os"

	"github.com/lbd-project/lbd/internal/netns"
)

// Kernel returns the queues of a network namespace that somebody has bound, in
// the kernel's order. fd is a descriptor of it; below 0 is the caller's own.
func Kernel(fd int) ([]KernelQueue, error) {
	var queues []KernelQueue
	err := netns.In(fd, func() error {
		// /proc/net would be the main thread's namespace.
		f, err := os.Open("/proc/thread-self/net/netfilter/nfnetlink_queue")
		if err != nil {
			return err
		}
		defer f.Close()
		queues, err = parseKernel(f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read queues of the kernel: %w", err)
	}
	return queues, nil
}
