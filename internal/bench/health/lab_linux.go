package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/e2e"
	"github.com/lbd-project/lbd/internal/netnstest"
)

const (
	// The networks between the namespaces, and of the real servers.
	balancer, router = "10.0.0.1/24", "10.0.0.2/24"
	network, via     = "10.1.0.0/16", "10.0.0.2"
	// perService is how many real servers a virtual service has. The services are
	// on one address, from firstPort on.
	perService = 100
	vip        = "192.0.2.10"
	firstPort  = 1000
	// maxTargets is how many addresses there are.
	maxTargets = 200 * 250
	// ticks is how often in a second some die.
	ticks = 10
)

// target is the address of the real server with a number.
func target(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i / 250), byte(1 + i%250)}), 80)
}

// lab is the balancer with its real servers.
type lab struct {
	lbd               *e2e.LBD
	balancer, servers *netnstest.NS
	dir, socket       string
}

// newLab makes the namespaces and the configuration. lbd is not started.
func newLab(t netnstest.TB, o options) (*lab, error) {
	dir, err := os.MkdirTemp("", "lbd-health-")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	lb, servers := netnstest.New(t), netnstest.New(t)
	netnstest.Veth(lb, "eth0", servers, "eth0")
	lb.AddAddr("eth0", balancer)
	servers.AddAddr("eth0", router)
	lb.AddRoute(network, via)
	for _, cmd := range [][]string{
		{"ip", "route", "add", "local", network, "dev", "lo"},
		{"nft", "add table ip t; add set ip t dead { type ipv4_addr; }; add chain ip t in { type filter hook input priority 0; }; add rule ip t in ip daddr @dead drop"},
	} {
		if _, err := servers.Run(exec.Command(cmd[0], cmd[1:]...)); err != nil {
			return nil, err
		}
	}
	serve(servers.Listen("tcp", "0.0.0.0:80"))
	file := filepath.Join(dir, "lbd.yaml")
	l := &lab{balancer: lb, servers: servers, dir: dir, socket: filepath.Join(dir, "lbd.sock")}
	if err := os.WriteFile(file, []byte(o.config(l.socket)), 0o600); err != nil {
		return nil, err
	}
	l.lbd = e2e.NewLBD(t, lb, filepath.Join(o.bin, "lbd"), file, dir)
	if !o.keepalived {
		l.lbd.Args = []string{"--log-level", "debug"} // each check says when it found what
	}
	return l, nil
}

// serve answers requests of HTTP, without a look at them: a server that does more
// would take the processors that are lbd's. Few connections of type tcp get here.
func serve(ln net.Listener) {
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n")
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(5 * time.Second))
				if n, err := c.Read(make([]byte, 1024)); n > 0 && err == nil {
					c.Write(answer)
				}
			}()
		}
	}()
}

// config returns lbd's file.
func (o options) config(socket string) string {
	var b strings.Builder
	engine := "userspace"
	if o.keepalived {
		engine = "kernel" // keepalived's
	}
	fmt.Fprintf(&b, "engine: %s\nsocket: {path: %s}\nstate_file: \"\"\non_exit: clear\n", engine, socket)
	fmt.Fprintf(&b, "checks:\n  alive: {type: %s, interval: %v, timeout: %v, rise: 1, fall: %d}\n", o.kind, o.interval, o.timeout, o.fall)
	b.WriteString("virtual_services:\n")
	for i := range o.targets {
		if i%perService == 0 {
			fmt.Fprintf(&b, "  - address: %s:%d\n    scheduler: wlc\n    forwarding: masq\n    check: alive\n    real_servers:\n", vip, firstPort+i/perService)
		}
		fmt.Fprintf(&b, "      - {address: %v}\n", target(i))
	}
	return b.String()
}

// kill has packets to the targets dropped, and returns when that began at the
// earliest.
func (l *lab) kill(ctx context.Context, targets []int) (time.Time, error) {
	addrs := make([]string, len(targets))
	for i, n := range targets {
		addrs[i] = target(n).Addr().String()
	}
	begun := time.Now()
	_, err := l.servers.Run(exec.CommandContext(ctx, "nft", "add element ip t dead { "+strings.Join(addrs, ", ")+" }"))
	return begun, err
}
