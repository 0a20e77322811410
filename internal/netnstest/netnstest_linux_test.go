package netnstest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv("NETNSTEST_HELPER"); mode != "" {
		os.Exit(helper(mode))
	}
	os.Exit(m.Run())
}

func TestNetnsTraffic(t *testing.T) {
	Require(t, "netns")
	for _, tt := range []struct{ name, client, server, target string }{
		{"ipv4", "192.0.2.1/24", "192.0.2.2/24", "192.0.2.2:80"},
		{"ipv6", "2001:db8::1/64", "2001:db8::2/64", "[2001:db8::2]:80"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, server, hub := New(t), New(t), New(t)
			Veth(client, "eth0", hub, "client")
			Veth(server, "eth0", hub, "server")
			hub.AddBridge("br0", "client", "server")
			client.AddAddr("eth0", tt.client)
			server.AddAddr("eth0", tt.server)
			ln := server.Listen("tcp", tt.target)
			go func() {
				c, err := ln.Accept()
				if err == nil {
					io.WriteString(c, "hello")
					c.Close()
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			c, err := client.DialContext(ctx, "tcp", tt.target)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(10 * time.Second))
			b, err := io.ReadAll(c)
			if string(b) != "hello" || err != nil {
				t.Errorf("want hello, got %q, %v", b, err)
			}
			if want, got := []string{tt.client}, client.Addrs("eth0"); !cmp.Equal(want, got) {
				t.Errorf("addresses (-want +got)\n%s", cmp.Diff(want, got))
			}
		})
	}
}

// TestNetnsListenAgain listens where a child that does not execute its program yet still
// has a copy of the socket.
func TestNetnsListenAgain(t *testing.T) {
	Require(t, "netns")
	n := New(t)
	ln, pc := n.Listen("tcp", "127.0.0.1:80"), n.ListenPacket("udp", "127.0.0.1:80")
	for _, s := range []interface {
		File() (*os.File, error)
		Close() error
	}{ln.(*net.TCPListener), pc.(*net.UDPConn)} {
		copied, err := s.File()
		if err != nil {
			t.Fatal(err)
		}
		defer copied.Close()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(100*time.Millisecond, func() { copied.Close() })
	}
	n.Listen("tcp", "127.0.0.1:80")
	n.ListenPacket("udp", "127.0.0.1:80")
}

// TestNetnsIsolated sees that nothing leaks: neither settings nor threads.
func TestNetnsIsolated(t *testing.T) {
	Require(t, "netns")
	self := func() string {
		s, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := New(t), New(t)
	outside := self()
	var inA, inB, nested string
	err := a.Do(func() error {
		inA = self()
		return b.Do(func() error {
			inB = self()
			return a.Do(func() error { nested = self(); return nil })
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if inA == outside || inB == outside || inA == inB || nested != inA {
		t.Errorf("namespaces: outside %s, a %s, b %s, a within b %s", outside, inA, inB, nested)
	}
	if got := self(); got != outside {
		t.Errorf("after Do: want %s, got %s", outside, got)
	}
	a.SetSysctl("net.ipv4.ip_forward", "1")
	b.SetSysctl("net.ipv4.ip_forward", "0")
	if got := a.Sysctl("net.ipv4.ip_forward"); got != "1" {
		t.Errorf("ip_forward in a: want 1, got %s", got)
	}
	if got := b.Sysctl("net.ipv4.ip_forward"); got != "0" {
		t.Errorf("ip_forward in b: want 0, got %s", got)
	}
}

func TestNetnsRun(t *testing.T) {
	Require(t, "netns")
	n := New(t)
	var want string
	n.Do(func() (err error) { want, err = os.Readlink("/proc/thread-self/ns/net"); return err })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := func(mode string) *exec.Cmd {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "NETNSTEST_HELPER="+mode)
		return cmd
	}
	got, err := n.Run(child("print"))
	if err != nil || !strings.Contains(got, want) {
		t.Errorf("namespace of a command: want %s, got %q, %v", want, got, err)
	}
	if _, err := n.Run(child("fail")); err == nil || !strings.Contains(err.Error(), "on purpose") {
		t.Errorf("a failed command: want its standard error, got %v", err)
	}
	// Another process can open Path.
	cmd := child("path")
	cmd.Env = append(cmd.Env, "NETNSTEST_PATH="+n.Path())
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("%s in another process: want %s, got %q, %v", n.Path(), want, &out, err)
	}
}

// helper is what TestNetnsRun starts.
func helper(mode string) int {
	link := "/proc/self/ns/net"
	switch mode {
	case "fail":
		fmt.Fprintln(os.Stderr, "on purpose")
		return 1
	case "path":
		link = os.Getenv("NETNSTEST_PATH")
	}
	s, err := os.Readlink(link)
	fmt.Println(s, err)
	return 0
}

// fakeTB ends a goroutine as a test would.
type fakeTB struct {
	testing.TB
	outcome string
}

func (f *fakeTB) Helper() {}
func (f *fakeTB) Fatalf(format string, args ...any) {
	f.outcome = "fatal: " + fmt.Sprintf(format, args...)
	panic(f)
}
func (f *fakeTB) Skipf(format string, args ...any) {
	f.outcome = "skip: " + fmt.Sprintf(format, args...)
	panic(f)
}

func TestRequire(t *testing.T) {
	probes := map[string]func() error{
		"netns":  func() error { return nil },
		"absent": func() error { return fmt.Errorf("look: %w", os.ErrNotExist) },
	}
	for _, tt := range []struct{ env, feature, want string }{
		{"", "absent", "skip: no absent here: look: file does not exist"},
		{"netns,ipvs", "absent", "skip: no absent here: look: file does not exist"},
		{"netns,absent", "absent", "fatal: LBD_TEST_REQUIRE requires absent: look: file does not exist"},
		{"", "ipsv", `fatal: netnstest.Require: unknown feature "ipsv"`},
	} {
		t.Run(tt.env+" "+tt.feature, func(t *testing.T) {
			t.Setenv(requireEnv, tt.env)
			f := &fakeTB{TB: t}
			func() {
				defer func() { recover() }()
				require(f, probes, []string{"netns", tt.feature})
			}()
			if f.outcome != tt.want {
				t.Errorf("want %q, got %q", tt.want, f.outcome)
			}
		})
	}
}

// TestNetnsProbes sees that a probe's answer is the kernel's: what it calls
// present must be in the lists of /proc, what it calls absent must not.
func TestNetnsProbes(t *testing.T) {
	Require(t, "netns")
	n := New(t)
	listed := func(path string) bool {
		return n.Do(func() error { _, err := os.Stat(path); return err }) == nil
	}
	for feature, path := range map[string]string{
		"ipvs":    "/proc/thread-self/net/ip_vs",
		"nfqueue": "/proc/thread-self/net/netfilter/nfnetlink_queue",
	} {
		err := probes()[feature]()
		if got, want := err == nil, listed(path); got != want {
			t.Errorf("%s: want present %v (%s), got %v (%v)", feature, want, path, got, err)
		}
	}
}

func TestNetnsRoutes(t *testing.T) {
	Require(t, "netns")
	a, router, b := New(t), New(t), New(t)
	Veth(a, "eth0", router, "a")
	Veth(b, "eth0", router, "b")
	router.SetSysctl("net.ipv4.ip_forward", "1")
	a.AddAddr("eth0", "192.0.2.1/25")
	router.AddAddr("a", "192.0.2.2/25")
	router.AddAddr("b", "192.0.2.129/25")
	b.AddAddr("eth0", "192.0.2.130/25")
	a.AddRoute("0.0.0.0/0", "192.0.2.2")
	b.AddRoute("192.0.2.0/25", "192.0.2.129")
	pc := b.ListenPacket("udp", "192.0.2.130:53")
	c, err := a.DialContext(t.Context(), "udp", "192.0.2.130:53")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	pc.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, from, err := pc.ReadFrom(make([]byte, 9))
	if err != nil {
		t.Fatal(err)
	}
	if got := from.(*net.UDPAddr).AddrPort().Addr().String(); got != "192.0.2.1" {
		t.Errorf("sender: want 192.0.2.1, got %s", got)
	}
	b.AddAddr("lo", "198.51.100.1/32")
	b.DelAddr("eth0", "192.0.2.130/25")
	if got := b.Addrs("lo"); !slices.Contains(got, "198.51.100.1/32") {
		t.Errorf("addresses of lo: want 198.51.100.1/32 among them, got %v", got)
	}
	if got := b.Addrs("eth0"); len(got) != 0 {
		t.Errorf("addresses of eth0: want none, got %v", got)
	}
}
