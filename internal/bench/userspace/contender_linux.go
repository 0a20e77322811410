package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// The contenders.
const (
	nameRouting = "routing"
	nameLimit   = "limit"
	nameQueue   = "queue"
	nameLBD     = "lbd"
	nameHAProxy = "haproxy"
	nameNginx   = "nginx"
	nameIPVS    = "ipvs"
)

// defaultContenders are those that need nothing but this kernel, in the order of
// their turns. When lbd's comes, it has been awake for two others'.
var defaultContenders = []string{nameRouting, nameLimit, nameHAProxy, nameNginx, nameLBD}

func contenderNames() []string { return append([]string{nameIPVS, nameQueue}, defaultContenders...) }

// startTimeout bounds the start of a contender.
const startTimeout = 30 * time.Second

// contender is what balances. start returns when it does.
type contender struct {
	name  string
	start func(ctx context.Context, t netnstest.TB, r *rig.Rig) (*running, error)
	// to replaces the virtual service as the load's destination.
	to func(port uint16) netip.AddrPort
}

// running is a contender that was started.
type running struct {
	// signal sends a signal to its program, if it has one.
	signal func(syscall.Signal) error
	// stop takes it away.
	stop func() error
	// log is what it has written.
	log func() string
}

// rest stops the program, wake lets it go on.
func (r *running) rest() error { return r.signal(syscall.SIGSTOP) }
func (r *running) wake() error { return r.signal(syscall.SIGCONT) }

// noProgram is a contender without a program.
func noProgram() *running {
	return &running{func(syscall.Signal) error { return nil }, func() error { return nil }, func() string { return "" }}
}

// bare says whether a contender is the kernel alone.
func bare(name string) bool { return name == nameRouting || name == nameLimit }

func (t *trial) contender(name string) contender {
	c := contender{name: name, to: vip}
	switch name {
	case nameRouting:
		c.start = func(context.Context, netnstest.TB, *rig.Rig) (*running, error) {
			return noProgram(), nil
		}
		c.to = func(port uint16) netip.AddrPort { return netip.AddrPortFrom(rig.Server(0), port) }
	case nameLimit:
		c.start = startLimit
	case nameQueue:
		c.start = startQueue
	case nameLBD:
		c.start = t.startLBD("userspace")
	case nameIPVS:
		c.start = t.startLBD("kernel")
	case nameHAProxy:
		c.start = t.startProxy(haproxyConfig, "haproxy", "-db", "-f")
	case nameNginx:
		c.start = t.startProxy(nginxConfig, "nginx", "-c")
	}
	return c
}

// nft applies a ruleset in the balancer's namespace, with which it goes.
func nft(ctx context.Context, r *rig.Rig, rules string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if _, err := r.Balancer.Run(cmd); err != nil {
		return fmt.Errorf("nft: %w", err)
	}
	return nil
}

func startLimit(ctx context.Context, _ netnstest.TB, r *rig.Rig) (*running, error) {
	return noProgram(), nft(ctx, r, limitRules())
}

// startProxy starts a proxy in the foreground and waits for its ports.
func (t *trial) startProxy(config func(dir string) string, name string, args ...string) func(context.Context, netnstest.TB, *rig.Rig) (*running, error) {
	return func(ctx context.Context, tb netnstest.TB, r *rig.Rig) (*running, error) {
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		file := filepath.Join(t.dir, name+".conf")
		if err := os.WriteFile(file, []byte(config(t.dir)), 0o600); err != nil {
			return nil, err
		}
		p, err := rig.StartProcess(tb, r.Balancer, name, append(args, file)...)
		if err != nil {
			return nil, err
		}
		err = p.Await(ctx, func() error {
			for _, port := range rig.Ports() {
				c, err := r.Client.DialContext(ctx, "tcp", vip(port).String())
				if err != nil {
					return err
				}
				c.Close()
			}
			return nil
		})
		return &running{p.Signal, p.Stop, p.Output}, err
	}
}
