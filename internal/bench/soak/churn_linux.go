package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"

	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/e2e"
)

// checkPort is what the checks connect to.
const checkPort = 8081

// churn changes what lbd balances. The first real server never fails, and never
// leaves: a service without any would refuse clients rightly.
type churn struct {
	rig          *rig.Rig
	file, socket string
	rand         *rand.Rand
	// healthy are the listeners of those whose checks pass.
	healthy [servers]net.Listener
	// out are those that have left.
	out [servers]bool

	failures, recoveries, reloads, left, came int
}

func newChurn(r *rig.Rig, file, socket string, rnd *rand.Rand) *churn {
	return &churn{rig: r, file: file, socket: socket, rand: rnd}
}

func (c *churn) String() string {
	return fmt.Sprintf("%d failed checks, %d recoveries, %d reloads, %d real servers left, %d came back",
		c.failures, c.recoveries, c.reloads, c.left, c.came)
}

// all makes every real server healthy, and writes a file that has all of them.
func (c *churn) all() error {
	for i := 1; i < servers; i++ {
		c.out[i] = false
		c.recover(i)
	}
	return c.write()
}

func (c *churn) recover(i int) {
	if c.healthy[i] == nil {
		c.healthy[i] = c.rig.Servers[i].Listen("tcp", fmt.Sprintf("%v:%d", rig.Server(i), checkPort))
		c.recoveries++
	}
}

// change does one of the changes.
func (c *churn) change(lbd *e2e.LBD) error {
	i := 1 + c.rand.IntN(servers-1)
	switch c.rand.IntN(3) {
	case 0: // its checks fail, or pass again
		if c.healthy[i] == nil {
			c.recover(i)
			return nil
		}
		if c.rand.IntN(2) == 0 {
			c.failures++
			err := c.healthy[i].Close()
			c.healthy[i] = nil
			return err
		}
	case 1: // it comes back, or leaves
		if c.out[i] {
			c.out[i] = false
			c.came++
		} else if c.rand.IntN(2) == 0 {
			c.out[i] = true
			c.left++
		}
	}
	return c.reload(lbd)
}

// reload gives all real servers new weights.
func (c *churn) reload(lbd *e2e.LBD) error {
	c.reloads++
	if err := c.write(); err != nil {
		return err
	}
	return lbd.Reload()
}

func (c *churn) write() error {
	var b strings.Builder
	fmt.Fprintf(&b, `engine: userspace
socket: {path: %s}
state_file: ""
on_exit: clear
mirror_interval: 100ms
reconcile_interval: 1s
virtual_services:
  - address: %v:%d
    scheduler: wlc
    drain_timeout: 1m
    real_servers:
      - {address: %v:%d}
`, c.socket, rig.VIP(), rig.AnswerPort, rig.Server(0), rig.AnswerPort)
	for i := 1; i < servers; i++ {
		if !c.out[i] {
			fmt.Fprintf(&b, "      - {address: %v:%d, weight: %d, check: {type: tcp, port: %d, interval: 200ms, timeout: 200ms, rise: 1, fall: 1}}\n",
				rig.Server(i), rig.AnswerPort, 1+c.rand.IntN(5), checkPort)
		}
	}
	return os.WriteFile(c.file, []byte(b.String()), 0o600)
}
