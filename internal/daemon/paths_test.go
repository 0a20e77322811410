package daemon

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
)

// fakePaths are paths in memory.
type fakePaths struct {
	mu      sync.Mutex
	keys    []ruleset.PathKey
	there   bool
	keeps   int
	err     error
	tunnels bool
}

func (p *fakePaths) Path(healthcheck.Through, netip.Addr) (healthcheck.Path, error) {
	return healthcheck.Path{}, nil
}

func (p *fakePaths) Kept(time.Time) error { return nil }

func (p *fakePaths) Able(tunnels bool) error {
	p.tunnels = tunnels
	return p.err
}

func (p *fakePaths) Set(_ context.Context, keys []ruleset.PathKey) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.keys, p.there = keys, true
	}
	return p.err
}

func (p *fakePaths) Keep(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keeps++
	return p.err
}

func (p *fakePaths) Remove(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.keys, p.there = nil, false
	}
	return p.err
}

// want compares the paths that are there.
func (p *fakePaths) want(t *testing.T, there bool, servers ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var got []string
	for _, k := range p.keys {
		got = append(got, k.Service.String()+" "+k.Server.String())
	}
	if diff := cmp.Diff(servers, got); diff != "" || p.there != there {
		t.Errorf("paths: want there: %v, got %v (-want +got):\n%s", there, p.there, diff)
	}
}

// through returns a configuration with checks through the service.
func through(r *rig, servers ...string) *config.Config {
	s := service(vip)
	for _, addr := range servers {
		rs := r.checked(addr, 1)
		rs.Probes[0].Through.Service = netip.MustParseAddrPort(vip).Addr()
		s.RealServers = append(s.RealServers, rs)
	}
	return conf(s)
}

// TestPaths follows the paths through a start, reloads, restarts and the end.
func TestPaths(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := &fakePaths{}
		r.paths = p
		d := r.start(through(r, rs2, rs3))
		p.want(t, true, "192.0.2.1 10.0.0.2", "192.0.2.1 10.0.0.3")
		if !r.load().Paths {
			t.Error("the memory does not tell of paths")
		}
		after(3 * keepInterval)
		if p.mu.Lock(); p.keeps < 2 {
			t.Errorf("looked after: want twice at least, got %d", p.keeps)
		}
		p.mu.Unlock()
		if err := d.switchTo(through(r, rs3, rs4)); err != nil {
			t.Fatal(err)
		}
		p.want(t, true, "192.0.2.1 10.0.0.3", "192.0.2.1 10.0.0.4")
		d.kill()

		// One that needs none removes what the dead one left.
		d = r.start(conf(service(vip, r.checked(rs2, 1))))
		p.want(t, false)
		if r.load().Paths {
			t.Error("the memory tells of paths that are gone")
		}
		if err := d.switchTo(through(r, rs2)); err != nil {
			t.Fatal(err)
		}
		p.want(t, true, "192.0.2.1 10.0.0.2")
		d.kill()
		o := r.cleaner()
		o.paths = p
		if err := o.clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.want(t, false)
		if m := r.load(); m.Paths {
			t.Error("cleared, and the memory tells of paths")
		}
	})
}

// TestPathsFail keeps the configuration whose paths are there.
func TestPathsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := &fakePaths{}
		r.paths = p
		d := r.start(through(r, rs2))
		p.err = errors.New("no nftables")
		if err := d.switchTo(through(r, rs2, rs3)); err == nil || !strings.Contains(err.Error(), "no nftables") {
			t.Errorf("want the reload refused, got %v", err)
		}
		p.want(t, true, "192.0.2.1 10.0.0.2")
		after(10 * time.Second)
		if n := strings.Count(r.log.String(), "own addresses"); n != 1 {
			t.Errorf("want one warning, got %d in\n%s", n, r.log)
		}
		p.err = nil
	})
}

func TestCheckPaths(t *testing.T) {
	r := &rig{net: &fakeNet{}}
	without, with := conf(service(vip, server(rs2, 1))), through(r, rs2)
	if err := checkPaths(nil, without); err != nil {
		t.Errorf("without such a check: %v", err)
	}
	if err := checkPaths(nil, with); err == nil {
		t.Error("without paths: want an error")
	}
	p := &fakePaths{err: errors.New("no nftables")}
	if err := checkPaths(p, without); err != nil {
		t.Errorf("without such a check: %v", err)
	}
	var bad *ConfigError
	if err := checkPaths(p, with); !errors.As(err, &bad) || err.Error() != "check: to: service: no nftables" || p.tunnels {
		t.Errorf("want the reason, got %v", err)
	}
	with.VirtualServices[0].RealServers[0].Probes[0].Through.Tunnel = true
	if checkPaths(p, with); !p.tunnels {
		t.Error("want tunnels asked for")
	}
}
