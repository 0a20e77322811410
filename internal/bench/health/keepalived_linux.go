package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// keepalived is the contender of that name: its checkers alone, with the same
// checks of the same real servers.
func (l *lab) keepalived(t netnstest.TB, o options) contender {
	file := filepath.Join(l.dir, "keepalived.conf")
	pids := filepath.Join(l.dir, "keepalived.pid")
	var p *rig.Process
	return contender{
		name: keepalivedName,
		start: func() (int, error) {
			if err := os.WriteFile(file, []byte(o.keepalivedConfig()), 0o600); err != nil {
				return 0, err
			}
			var err error
			p, err = rig.StartProcess(t, l.balancer, "keepalived", "--dont-fork", "--log-console", "--check",
				"--use-file", file, "--pid", pids, "--checkers_pid", pids+".checkers")
			if err != nil {
				return 0, err
			}
			return p.PID(), nil
		},
		stop: func() error { return p.Stop() },
	}
}

// keepalivedConfig returns keepalived's file. Its first checks begin at random within
// the interval; then it waits for the interval from the end of each.
func (o options) keepalivedConfig() string {
	var b strings.Builder
	for i := range o.targets {
		if i%perService == 0 {
			if i > 0 {
				b.WriteString("}\n")
			}
			fmt.Fprintf(&b, "virtual_server %s %d {\n  lvs_sched wlc\n  lvs_method NAT\n  protocol TCP\n  delay_loop %g\n",
				vip, firstPort+i/perService, o.interval.Seconds())
		}
		a := target(i)
		fmt.Fprintf(&b, "  real_server %v %d {\n    weight 1\n    TCP_CHECK {\n      connect_timeout %g\n    }\n  }\n",
			a.Addr(), a.Port(), o.timeout.Seconds())
	}
	b.WriteString("}\n")
	return b.String()
}

// The counter of connections that arrive at the real servers. nft prints it as
// "counter packets 7 bytes 420".
const (
	countRule  = "add counter ip t syns; add rule ip t in tcp flags & (syn | ack) == syn counter name syns"
	countPrint = "packets "
)

func (l *lab) countSYNs() error {
	if _, err := l.servers.Run(exec.Command("nft", countRule)); err != nil {
		return err
	}
	_, err := l.syns() // the first reading takes longest
	return err
}

// syns returns how many connections have been tried ever.
func (l *lab) syns() (n int, err error) {
	text, err := l.servers.Run(exec.Command("nft", "list counter ip t syns"))
	if err != nil {
		return 0, err
	}
	_, count, _ := strings.Cut(text, countPrint)
	if _, err := fmt.Sscan(count, &n); err != nil {
		return 0, fmt.Errorf("read the counter in %q: %w", text, err)
	}
	return n, nil
}
