package ipvs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// childEnv makes the test binary a child of TestKernelUserNamespace or
// TestKernelAmbient instead of running tests.
const childEnv = "IPVS_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	if err := useEverything(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// useEverything uses every kind of access in the namespace that the process was
// started in.
func useEverything() error {
	c, err := Open()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx := context.Background()
	if _, err := c.Table(ctx); err != nil {
		return err
	}
	if err := c.AddService(ctx, service(kernelV6)); err != nil {
		return err
	}
	if counts, err := c.Counts(ctx); err != nil || len(counts) != 1 {
		return fmt.Errorf("counts %v, %w", counts, err)
	}
	for conn, err := range c.Connections(ctx) {
		return fmt.Errorf("connection %v, %w", conn, err)
	}
	return nil
}

// child runs useEverything in a process of its own in a namespace.
func child(t *testing.T, ns *netnstest.NS, attr *syscall.SysProcAttr) (string, error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.SysProcAttr = attr
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err = ns.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	return out.String(), err
}

// TestKernelUserNamespace pins that CAP_NET_ADMIN of a user namespace is not
// enough, reads included.
func TestKernelUserNamespace(t *testing.T) {
	_, ns := kernelClient(t)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	out, err := child(t, ns, &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, UidMappings: ids, GidMappings: ids,
	})
	if err == nil || !strings.Contains(out, "read table: operation not permitted (needs CAP_NET_ADMIN)") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestKernelAmbient pins that an ordinary user with CAP_NET_ADMIN and nothing
// else can do everything.
func TestKernelAmbient(t *testing.T) {
	c, ns := kernelClient(t)
	mustApply(t, c, addService(service(kernelV4)), addDest(kernelV4, dest("10.0.0.1:80", Masq)))
	out, err := child(t, ns, &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: 65534, Gid: 65534},
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN},
	})
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	if n := len(mustTable(t, c)); n != 2 {
		t.Errorf("%d services, want 2", n)
	}
}

// TestKernelModule takes the module away under an open client and gives it back.
func TestKernelModule(t *testing.T) {
	c, _ := kernelClient(t)
	if !netnstest.OwnsModules() {
		t.Skip("unloads ip_vs: only in the virtual machine")
	}
	ctx := t.Context()
	mustApply(t, c, addService(service(kernelV4)), addDest(kernelV4, dest("10.0.0.1:80", Masq)))
	if _, err := c.Counts(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	old := c.link.family

	restore := netnstest.StopAutoload(t)
	unload := func() { netnstest.UnloadIPVS(t, func() {}) }
	unload()

	_, terr := c.Table(ctx)
	_, ierr := c.Info(ctx)
	_, cerr := c.Counts(ctx)
	var connErr error
	for _, err := range c.Connections(ctx) {
		connErr = err
	}
	_, openErr := Open()
	for what, err := range map[string]error{
		"Table": terr, "Info": ierr, "Counts": cerr, "Connections": connErr, "Open": openErr,
		"AddService": c.AddService(ctx, service(kernelV4)), "Flush": c.Flush(ctx),
		"Apply": c.Apply(ctx, []Op{addService(service(kernelV4)), addService(service(kernelV6))}),
	} {
		if !errors.Is(err, ErrNotAvailable) || errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*BatchError)) ||
			!strings.Contains(fmt.Sprint(err), "is ip_vs loaded?") {
			t.Errorf("%s without the module: %v", what, err)
		}
	}

	// Looking the family up loads the module again, under another number, which
	// an open client has to learn.
	restore()
	mustApply(t, c, addService(service(kernelV4)), addDest(kernelV4, dest("10.0.0.1:80", Masq)))
	if c.link.family == old {
		t.Errorf("the family still has the number %#x", old)
	}
	if counts, err := c.Counts(ctx); err != nil || len(counts) != 1 {
		t.Errorf("counts %v, %v; want one", counts, err)
	}
	// Unloaded and loaded between two calls: the number is wrong, the family is
	// there.
	for _, call := range []struct {
		name string
		fn   func() error
	}{
		{"Table", func() error { _, err := c.Table(ctx); return err }},
		{"Timeouts", func() error { _, err := c.Timeouts(ctx); return err }},
		{"ZeroAll", func() error { return c.ZeroAll(ctx) }},
		{"Apply", func() error { return c.Apply(ctx, []Op{addService(service(kernelV4)), addService(service(kernelV6))}) }},
	} {
		if err := c.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		old := c.link.family
		unload()
		fresh, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		fresh.Close()
		if err := call.fn(); err != nil {
			t.Errorf("%s after a reload: %v", call.name, err)
		}
		if c.link.family == old {
			t.Errorf("%s: the family still has the number %#x", call.name, old)
		}
	}
	if n := len(mustTable(t, c)); n != 2 {
		t.Errorf("%d services, want 2", n)
	}
}
