package nfqueue

import (
	"fmt"
	"os"
)

// Kernel returns the queues of a network namespace that somebody has bound, in
// the kernel's order. netns is a descriptor of it; below 0 is the caller's own.
func Kernel(netns int) ([]KernelQueue, error) {
	var queues []KernelQueue
	err := inNetNS(netns, func() error {
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
