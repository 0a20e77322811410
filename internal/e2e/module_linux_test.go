package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/netnstest"
)

const moduleConfig = `
socket: {path: %s}
state_file: ""
reconcile_interval: 5s
sysctls: {expire_nodest_conn: 1}
virtual_services:
  - name: web
    address: 192.0.2.10:80
    check: {type: tcp, interval: 1s, timeout: 1s, rise: 1, fall: 2}
    real_servers:
      - {address: 10.0.0.2:80, weight: 3}
      - {address: 10.0.0.3:80, weight: 2}
`

// TestKernelModuleGone takes the table and then the IPVS module away from a
// running lbd: it says so, goes on checking, and programs everything again once
// the module can be loaded.
func TestKernelModuleGone(t *testing.T) {
	netnstest.Require(t, "netns", "ipvs")
	if !netnstest.OwnsModules() {
		t.Skip("unloads ip_vs: only in the virtual machine")
	}
	bin, ipvsctl, err := Programs(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l, dir := NewLab(t, Masq, 2), t.TempDir()
	l.AddVIP(VIP4)
	socket := filepath.Join(dir, "lbd.sock")
	config := filepath.Join(dir, "lbd.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, moduleConfig, socket), 0o600); err != nil {
		t.Fatal(err)
	}
	d := NewLBD(t, l.Balancer, bin, config, dir)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of lbd:\n%s", d.Log())
		}
	})
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	status := func() (string, error) {
		out, err := runBounded(l.Balancer, exec.Command(ipvsctl, "--socket", socket, "status"))
		return out, err
	}
	table := func(want string) error {
		got, err := ReadTable(l.Balancer)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got.String()); diff != "" {
			return fmt.Errorf("table (-want +got)\n%s", diff)
		}
		return nil
	}
	const up = "TCP 192.0.2.10:80 wlc\n  10.0.0.2:80 Masq 3\n  10.0.0.3:80 Masq 2\n"
	if err := table(up); err != nil {
		t.Fatal(err)
	}

	restore := netnstest.StopAutoload(t)
	netnstest.UnloadIPVS(t, func() {
		if _, err := runBounded(l.Balancer, exec.Command("ipvsadm", "-C")); err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, func() error {
		out, err := status()
		if err == nil && !strings.Contains(out, "IPVS not available") {
			err = fmt.Errorf("status does not say that IPVS is not available:\n%s", out)
		}
		return err
	})
	// The checks go on: the next table has the weights of then.
	l.Server("s1").Refuse(HTTPPort)
	eventually(t, func() error {
		out, err := runBounded(l.Balancer, exec.Command(ipvsctl, "--socket", socket, "list"))
		if err == nil && !strings.Contains(out, "refused") {
			err = fmt.Errorf("the failed server is not told:\n%s", out)
		}
		return err
	})
	if !d.Running() {
		t.Fatal("lbd ended")
	}

	restore()
	eventually(t, func() error { return table(strings.Replace(up, "Masq 3", "Masq 0", 1)) })
	eventually(t, func() error {
		out, err := status()
		if err == nil && strings.Contains(out, "not available") {
			err = fmt.Errorf("status still complains:\n%s", out)
		}
		return err
	})
	if got := l.Balancer.Sysctl("net.ipv4.vs.expire_nodest_conn"); got != "1" {
		t.Errorf("expire_nodest_conn of the new module: want 1, got %s", got)
	}
	name, err := l.Get(t.Context(), "http://192.0.2.10/")
	if err != nil || name != "s2" {
		t.Errorf("request: want s2, got %q, %v", name, err)
	}
}

// eventually fails unless f succeeds within a time that only a broken lbd needs:
// it waits up to half a minute between two attempts.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(errors.Join(err, ctx.Err()))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
