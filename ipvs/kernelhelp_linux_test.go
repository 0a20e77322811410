package ipvs

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// The TestKernel tests pin what the package relies on in the kernel. Each has a
// network namespace of its own.

func kernelClient(t testing.TB) (*Client, *netnstest.NS) {
	t.Helper()
	netnstest.Require(t, "netns", "ipvs")
	loadSchedulers(t)
	ns := netnstest.New(t)
	c, err := Open(WithNetNS(ns.FD()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { emptyAndClose(t, c) })
	return c, ns
}

// emptyAndClose takes the services away at once. The namespace may outlive the
// test: the kernel removes it in its own time, and Go never ends the main thread
// if that has entered it. A service would keep its scheduler's module meanwhile,
// which TestKernelModule unloads.
func emptyAndClose(t testing.TB, c *Client) {
	t.Helper()
	if err := c.Flush(context.Background()); err != nil {
		t.Errorf("flush: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// loadSchedulers loads the schedulers whose autoload can hang the kernel while a
// namespace of an earlier test is being removed (see doc.go). Other machines
// than the rig have to see to that themselves.
func loadSchedulers(t testing.TB) {
	t.Helper()
	if !netnstest.OwnsModules() {
		return
	}
	for _, name := range []string{"ip_vs_lblc", "ip_vs_lblcr"} {
		if _, err := os.Stat("/sys/module/" + name); err == nil {
			continue
		}
		if out, err := exec.Command("modprobe", name).CombinedOutput(); err != nil {
			t.Fatalf("modprobe %s: %v: %s", name, err, out)
		}
	}
}

// mustApply applies ops, all of which must succeed.
func mustApply(t testing.TB, c *Client, ops ...Op) {
	t.Helper()
	if err := c.Apply(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
}

func mustTable(t testing.TB, c *Client) []TableEntry {
	t.Helper()
	table, err := c.Table(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// raw sends one operation without validating it and returns the errno that the
// kernel answers with, 0 for success.
func raw(t testing.TB, c *Client, op Op) syscall.Errno {
	t.Helper()
	return rawBytes(t, c, op.Kind.command(), func(b []byte) []byte {
		start := len(b)
		b = appendOp(b, 0, 0, 0, &op)
		return append(b[:start], b[start+nlmsgHeaderLen+genlHeaderLen:]...)
	})
}

// rawBytes sends a command with any attributes.
func rawBytes(t testing.TB, c *Client, cmd uint8, attrs func(b []byte) []byte) syscall.Errno {
	t.Helper()
	err := c.locked(t.Context(), func() error {
		if err := c.connect(); err != nil {
			return err
		}
		return c.request(t.Context(), cmd, attrs)
	})
	if err == nil {
		return 0
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	if _, kernel := errors.AsType[*kernelError](err); !ok || !kernel {
		t.Fatalf("command %d: %v", cmd, err)
	}
	return errno
}

func service(key ServiceKey) Service { return Service{ServiceKey: key, Scheduler: "rr"} }

func addService(s Service) Op { return Op{Kind: OpAddService, Service: s} }

func addDest(k ServiceKey, d Destination) Op {
	return Op{Kind: OpAddDestination, Service: Service{ServiceKey: k}, Destination: d}
}

func dest(addr string, forward ForwardMethod) Destination {
	return Destination{Address: netip.MustParseAddrPort(addr), Weight: 1, Forward: forward}
}

var (
	kernelV4 = AddrService(TCP, netip.MustParseAddrPort("192.0.2.10:80"))
	kernelV6 = AddrService(TCP, netip.MustParseAddrPort("[2001:db8::10]:80"))
)

// checkDests compares the real servers of a service with want, in list order.
func checkDests(t testing.TB, c *Client, k ServiceKey, want ...Destination) {
	t.Helper()
	list, err := c.Destinations(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	var got []Destination
	for _, d := range list {
		got = append(got, d.Destination)
	}
	if diff := cmp.Diff(want, got, testOptions); diff != "" {
		t.Errorf("real servers of %v (-want +got):\n%s", k, diff)
	}
}

// rawService returns the attributes of a service as the kernel sends them.
func rawService(t testing.TB, c *Client, k ServiceKey) (nest []byte) {
	t.Helper()
	err := c.run(t.Context(), func() error {
		return c.get(t.Context(), cmdGetService, cmdNewService,
			func(b []byte) []byte { return appendServiceKeyNest(b, k) },
			func(b []byte) error {
				n, err := nested(b, attrService)
				nest = append([]byte(nil), n...)
				return err
			})
	})
	if err != nil {
		t.Fatal(err)
	}
	return nest
}

func attrU32(t testing.TB, b []byte, typ uint16) uint32 {
	t.Helper()
	v, err := nested(b, typ)
	if err != nil || len(v) < 4 {
		t.Fatalf("attribute %d: % x, %v", typ, v, err)
	}
	return binary.NativeEndian.Uint32(v)
}

// dialHere opens a client whose socket is made on the calling thread, with its
// capabilities and in its network namespace.
func dialHere() (*Client, error) {
	l, err := dial()
	if err != nil {
		return nil, err
	}
	return newClient(func() (*link, error) { return l, nil }, fakeProc{}), nil
}
