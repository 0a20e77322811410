package rig

import (
	"fmt"
	"strings"
)

// LBD is what lbd shall balance: the ports of the VIP, over all real servers.
type LBD struct {
	// Engine and Scheduler are lbd's words. Flags are those of the scheduler.
	Engine, Scheduler, Flags string
	// Socket is the path of lbd's control socket.
	Socket string
	// Weights are those of the real servers, as many as there are.
	Weights []int
}

// Config returns the configuration. lbd clears its table when it stops, and
// checks nothing.
func (l LBD) Config() string {
	var b strings.Builder
	fmt.Fprintf(&b, "engine: %s\nsocket: {path: %s}\nstate_file: \"\"\non_exit: clear\nvirtual_services:\n", l.Engine, l.Socket)
	for _, port := range Ports() {
		fmt.Fprintf(&b, "  - address: %v:%d\n    scheduler: %s\n    scheduler_flags: [%s]\n    forwarding: masq\n    real_servers:\n",
			VIP(), port, l.Scheduler, l.Flags)
		for i, w := range l.Weights {
			fmt.Fprintf(&b, "      - {address: %v:%d, weight: %d}\n", Server(i), port, w)
		}
	}
	return b.String()
}
