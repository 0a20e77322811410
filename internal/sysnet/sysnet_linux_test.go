package sysnet

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// inside makes a namespace and opens it as lbd does.
func inside(t *testing.T) (*netnstest.NS, *Namespace) {
	t.Helper()
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	n, err := OpenNamespace(ns.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return ns, n
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// identity is the inode of the thread's namespace.
func identity() (string, error) { return os.Readlink("/proc/thread-self/ns/net") }

func TestOpenNamespaceErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo") // must not hang
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, want string }{
		{"lbd-no-such", "open network namespace: open /run/netns/lbd-no-such: no such file or directory"},
		{"a/b", `network namespace "a/b": neither a name nor an absolute path`},
		{"..", `network namespace "..": not a name`},
		{file, file + ": not a network namespace"},
		{fifo, fifo + ": not a network namespace"},
		{dir, dir + ": not a network namespace"},
		{"/proc/self/ns/uts", "/proc/self/ns/uts: not a network namespace"},
	}
	for _, tt := range tests {
		n, err := OpenNamespace(tt.name)
		if err == nil {
			n.Close()
			t.Errorf("%s: want %q, got no error", tt.name, tt.want)
			continue
		}
		if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if _, err := OpenNamespace("lbd-no-such"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("want fs.ErrNotExist, got %v", err)
	}
}

func TestNamespaceOwn(t *testing.T) {
	n, err := OpenNamespace("")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	want, _ := identity()
	var got string
	if err := n.Do(func() (err error) { got, err = identity(); return err }); err != nil || got != want {
		t.Errorf("want %s, got %s, %v", want, got, err)
	}
	if n.FD() < 0 || n.String() != "own" {
		t.Errorf("got descriptor %d, name %q", n.FD(), n.String())
	}
}

func TestNetnsDo(t *testing.T) {
	ns, n := inside(t)
	before, _ := identity()
	var want string
	if err := ns.Do(func() (err error) { want, err = identity(); return err }); err != nil {
		t.Fatal(err)
	}
	if want == before {
		t.Fatal("the test's namespace is the process's own")
	}

	// Many at a time, and no thread may be left in there.
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			var got string
			err := n.Do(func() (err error) { got, err = identity(); return err })
			if err != nil || got != want {
				t.Errorf("inside: want %s, got %s, %v", want, got, err)
			}
			if got, _ := identity(); got != before {
				t.Errorf("outside: want %s, got %s", before, got)
			}
		})
	}
	wg.Wait()
	// netnstest throws threads away that made a namespace: they take a moment
	// to end, and the main thread, if it was one, cannot end at all.
	astray := func() (tasks []string) {
		all, err := filepath.Glob("/proc/self/task/*/ns/net")
		if err != nil || len(all) == 0 {
			t.Fatalf("list threads: %v, %v", all, err)
		}
		for _, task := range all {
			got, err := os.Readlink(task)
			main := strings.Contains(task, fmt.Sprintf("/task/%d/", os.Getpid()))
			if err == nil && got != before && !main {
				tasks = append(tasks, task)
			}
		}
		return tasks
	}
	deadline := time.Now().Add(20 * time.Second)
	for len(astray()) > 0 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if tasks := astray(); len(tasks) > 0 {
		t.Errorf("threads left in another namespace: %v", tasks)
	}
}

func TestNetnsDoOutcome(t *testing.T) {
	_, n := inside(t)
	mine := errors.New("mine")
	if err := n.Do(func() error { return mine }); err != mine {
		t.Errorf("want the function's error as it is, got %v", err)
	}
	if err := n.Do(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("want an error from a function that ended its goroutine")
	}
	func() {
		defer func() {
			if v, _ := recover().(string); !strings.HasPrefix(v, "boom\n") || !strings.Contains(v, "TestNetnsDoOutcome") {
				t.Errorf("want the panic passed on, got %v", v)
			}
		}()
		n.Do(func() error { panic("boom") })
	}()
	n.Close()
	if err := n.Do(func() error { t.Error("called after Close"); return nil }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: want os.ErrClosed, got %v", err)
	}
}

// TestNetnsDoSocket has a socket that was made inside used from outside.
func TestNetnsDoSocket(t *testing.T) {
	ns, n := inside(t)
	ln := ns.Listen("tcp", "127.0.0.1:0")
	var conn net.Conn
	err := n.Do(func() (err error) {
		conn, err = net.Dial("tcp", ln.Addr().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// TestNetnsDoCannotReturn makes the way back fail: the thread must end, not
// serve other goroutines.
func TestNetnsDoCannotReturn(t *testing.T) {
	_, n := inside(t)
	before, _ := identity()
	err := n.Do(func() error {
		// The descriptor for the way back is the newest one of the thread.
		fds, err := os.ReadDir("/proc/thread-self/fd")
		if err != nil {
			return err
		}
		for _, e := range fds {
			var fd int
			if _, err := fmt.Sscan(e.Name(), &fd); err != nil {
				return err
			}
			if to, err := os.Readlink("/proc/thread-self/fd/" + e.Name()); err == nil && to == before {
				null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
				if err != nil {
					return err
				}
				defer unix.Close(null)
				return unix.Dup3(null, fd, unix.O_CLOEXEC)
			}
		}
		return errors.New("no descriptor of the namespace before")
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			runtime.LockOSThread() // so that each has a thread of its own
			defer runtime.UnlockOSThread()
			if got, _ := identity(); got != before {
				t.Errorf("a goroutine runs in %s", got)
			}
		})
	}
	wg.Wait()
}

func TestNetnsVIPs(t *testing.T) {
	ns, n := inside(t)
	ns.AddAddr("lo", "192.0.2.9/24")
	want := addrs("192.0.2.10", "2001:db8::10", "198.51.100.1")
	got, err := n.AddVIPs("lo", append(addrs("192.0.2.9", "::ffff:192.0.2.10"), want...))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("added (-want +got):\n%s", diff)
	}
	if got, err := n.AddVIPs("lo", want); err != nil || len(got) != 0 {
		t.Errorf("add again: want nothing, got %v, %v", got, err)
	}

	list := func() string {
		t.Helper()
		vips, err := n.ListVIPs("lo")
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, v := range vips {
			fmt.Fprintf(&b, "%v own=%v\n", v.Prefix, v.Own)
		}
		return b.String()
	}
	full := `127.0.0.1/8 own=false
192.0.2.9/24 own=false
192.0.2.10/32 own=true
198.51.100.1/32 own=true
::1/128 own=false
2001:db8::10/128 own=true
`
	if diff := cmp.Diff(full, list()); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	// Usable at once, also v6.
	for _, a := range want {
		ns.Listen("tcp", netip.AddrPortFrom(a, 0).String()).Close()
	}

	// Only the exact address goes: the host's /24 stays.
	removed, err := n.RemoveVIPs("lo", addrs("192.0.2.9", "192.0.2.10", "2001:db8::10", "203.0.113.1"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("[192.0.2.10 2001:db8::10]", fmt.Sprint(removed)); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	rest := `127.0.0.1/8 own=false
192.0.2.9/24 own=false
198.51.100.1/32 own=true
::1/128 own=false
`
	if diff := cmp.Diff(rest, list()); diff != "" {
		t.Errorf("list after removal (-want +got):\n%s", diff)
	}
}

// TestNetnsVIPSource makes sure that a v6 VIP beside the host's own address is
// not the source of the host's connections.
func TestNetnsVIPSource(t *testing.T) {
	ns, n := inside(t)
	peer := netnstest.New(t)
	netnstest.Veth(ns, "eth0", peer, "eth0")
	ns.AddAddr("eth0", "2001:db8::2/64")
	peer.AddAddr("eth0", "2001:db8::11/64")
	// Closer to the peer than the host's address is, by RFC 6724 rule 8.
	if _, err := n.AddVIPs("eth0", addrs("2001:db8::10")); err != nil {
		t.Fatal(err)
	}
	conn, err := ns.DialContext(t.Context(), "udp", "[2001:db8::11]:53")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.LocalAddr().(*net.UDPAddr).IP.String(); got != "2001:db8::2" {
		t.Errorf("want source 2001:db8::2, got %s", got)
	}
}

func TestNetnsVIPErrors(t *testing.T) {
	_, n := inside(t)
	const want = `interface "nope": no such device`
	if _, err := n.AddVIPs("nope", addrs("192.0.2.1")); err == nil || err.Error() != want || !errors.Is(err, unix.ENODEV) {
		t.Errorf("add: want %q, got %v", want, err)
	}
	if _, err := n.ListVIPs("nope"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("list: want ENODEV, got %v", err)
	}
	if got, err := n.RemoveVIPs("nope", addrs("192.0.2.1")); got != nil || err != nil {
		t.Errorf("remove: want nothing, got %v, %v", got, err)
	}
	// One bad address does not keep the others from it.
	got, err := n.AddVIPs("lo", addrs("192.0.2.1", "224.0.0.1", "192.0.2.2"))
	if err == nil || err.Error() != "add 224.0.0.1 to lo: invalid argument" {
		t.Errorf("want the bad one named, got %v", err)
	}
	if fmt.Sprint(got) != "[192.0.2.1 192.0.2.2]" {
		t.Errorf("want the others added, got %v", got)
	}
}

func TestNetnsSysctl(t *testing.T) {
	ns, n := inside(t)
	before, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err != nil {
		t.Fatal(err)
	}
	ns.SetSysctl("net.ipv4.ip_forward", "0")
	for _, step := range []struct{ value, old string }{{"1", "0"}, {"1", "1"}, {"0", "1"}} {
		old, err := n.SetSysctl("net.ipv4.ip_forward", step.value)
		if err != nil || old != step.old {
			t.Errorf("set %s: want old %s, got %q, %v", step.value, step.old, old, err)
		}
		if got := ns.Sysctl("net.ipv4.ip_forward"); got != step.value {
			t.Errorf("set %s: got %q", step.value, got)
		}
		if got, err := n.Sysctl("net.ipv4.ip_forward"); err != nil || got != step.value {
			t.Errorf("read: want %s, got %q, %v", step.value, got, err)
		}
	}
	if after, _ := os.ReadFile("/proc/sys/net/ipv4/ip_forward"); string(after) != string(before) {
		t.Errorf("the process's own namespace changed from %q to %q", before, after)
	}

	_, err = n.SetSysctl("net.ipv4.vs.no_such", "1")
	want := "sysctl net.ipv4.vs.no_such: the kernel has no such setting (is ip_vs loaded?): no such file or directory"
	if err == nil || err.Error() != want || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("want %q, got %v", want, err)
	}
	old, err := n.SetSysctl("net.ipv4.ip_default_ttl", "many")
	want = `sysctl net.ipv4.ip_default_ttl: set to "many": invalid argument`
	if err == nil || err.Error() != want || old != "64" {
		t.Errorf("want %q with old 64, got %v with %q", want, err, old)
	}
	if old, err := n.SetSysctl("net.ipv4.ip_local_port_range", "32768 60999"); err != nil || !sameValue(old, "32768 60999") {
		t.Errorf("a list with tabs: got %q, %v", old, err)
	}
}
