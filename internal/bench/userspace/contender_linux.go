package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// The contenders.
const (
	nameRouting = "routing"
	nameLimit   = "limit"
	nameLBD     = "lbd"
	nameHAProxy = "haproxy"
	nameNginx   = "nginx"
	nameIPVS    = "ipvs"
)

// defaultContenders are those that need nothing but this kernel.
var defaultContenders = []string{nameRouting, nameLimit, nameLBD, nameHAProxy, nameNginx}

func contenderNames() []string { return append([]string{nameIPVS}, defaultContenders...) }

// startTimeout bounds the start of a contender.
const startTimeout = 30 * time.Second

// contender is what balances. start returns when it does.
type contender struct {
	name  string
	start func(ctx context.Context, t netnstest.TB) (*running, error)
	// to replaces the virtual service as the load's destination.
	to func(port uint16) netip.AddrPort
}

// running is a contender that was started: how to take it away, and what it has
// written.
type running struct {
	stop func() error
	log  func() string
}

func silent() string { return "" }

func (t *trial) contender(name string) contender {
	c := contender{name: name, to: vip}
	switch name {
	case nameRouting:
		c.start = func(context.Context, netnstest.TB) (*running, error) {
			return &running{stop: func() error { return nil }, log: silent}, nil
		}
		c.to = func(port uint16) netip.AddrPort { return netip.AddrPortFrom(rig.Server(0), port) }
	case nameLimit:
		c.start = t.startLimit
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

// nft applies a ruleset in the balancer's namespace.
func (t *trial) nft(ctx context.Context, rules string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if _, err := t.rig.Balancer.Run(cmd); err != nil {
		return fmt.Errorf("nft: %w", err)
	}
	return nil
}

func (t *trial) startLimit(ctx context.Context, _ netnstest.TB) (*running, error) {
	if err := t.nft(ctx, limitRules()); err != nil {
		return nil, err
	}
	stop := func() error { return t.nft(ctx, "delete table ip "+limitTable) }
	return &running{stop, silent}, nil
}

// startProxy starts a proxy in the foreground and waits for its ports.
func (t *trial) startProxy(config func(dir string) string, name string, args ...string) func(context.Context, netnstest.TB) (*running, error) {
	return func(ctx context.Context, tb netnstest.TB) (*running, error) {
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		file := filepath.Join(t.dir, name+".conf")
		if err := os.WriteFile(file, []byte(config(t.dir)), 0o600); err != nil {
			return nil, err
		}
		p, err := rig.StartProcess(tb, t.rig.Balancer, name, append(args, file)...)
		if err != nil {
			return nil, err
		}
		err = p.Await(ctx, func() error {
			for _, port := range rig.Ports() {
				c, err := t.rig.Client.DialContext(ctx, "tcp", vip(port).String())
				if err != nil {
					return err
				}
				c.Close()
			}
			return nil
		})
		return &running{p.Stop, p.Output}, err
	}
}
