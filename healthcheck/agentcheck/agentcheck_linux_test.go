package agentcheck

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/hostile"
	"github.com/lbd-project/lbd/internal/checktest"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// says is an agent that sends text.
func says(text string) func(net.Conn) {
	return func(c net.Conn) { io.WriteString(c, text) }
}

var (
	up    = healthcheck.Advice{Health: healthcheck.SaysUp}
	drain = healthcheck.Advice{Admin: healthcheck.SaysDrain}
)

// TestNetnsAgent asks agents of every kind over real sockets.
func TestNetnsAgent(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	env := healthcheck.Env{Enter: ns.Do}
	long := strings.Repeat("x", maxAnswer-len("up #"))
	const slow = 20 * time.Second
	for name, tt := range map[string]struct {
		agent   func(net.Conn)
		send    string
		timeout time.Duration
		want    healthcheck.Advice
		err     string
		is      error
	}{
		"line feed":      {agent: says("up\n"), want: up},
		"crlf":           {agent: says("up\r\n"), want: up},
		"end":            {agent: says("drain"), want: drain},
		"first line":     {agent: says("drain\nup\ndown\n"), want: drain},
		"stays open":     {agent: func(c net.Conn) { says("up\n")(c); checktest.Hang(c) }, want: up},
		"goes on":        {agent: func(c net.Conn) { says("up\n" + strings.Repeat("down\n", 10000))(c) }, want: up},
		"slow":           {agent: func(c net.Conn) { time.Sleep(100 * time.Millisecond); says("up\n")(c) }, want: up},
		"drips":          {agent: drip("drain\r\n"), want: drain},
		"longest":        {agent: says("up #" + long + "\n"), want: healthcheck.Advice{Health: healthcheck.SaysUp, Reason: healthcheck.Printable(long)}},
		"longest, crlf":  {agent: says("up #" + long + "\r\n"), want: healthcheck.Advice{Health: healthcheck.SaysUp, Reason: healthcheck.Printable(long)}},
		"longest at end": {agent: says("up #" + long), want: healthcheck.Advice{Health: healthcheck.SaysUp, Reason: healthcheck.Printable(long)}},
		"asked": {send: "state\n", want: drain, agent: func(c net.Conn) {
			if line, _ := bufio.NewReader(c).ReadString('\n'); line == "state\n" {
				says("drain\n")(c)
			}
		}},
		"silent":        {agent: says(""), err: "empty answer"},
		"empty line":    {agent: says("\r\nup\n"), err: "empty answer"},
		"wrong":         {agent: says("SSH-2.0-OpenSSH_9.2\r\n"), err: `no word of an agent in "SSH-2.0-OpenSSH_9.2"`},
		"too long":      {agent: says("up #" + long + "x\n"), err: "read: the target sends too much: over 1024 bytes", is: hostile.ErrTooMuch},
		"too long, end": {agent: says("up #" + long + "x"), err: "read: the target sends too much: over 1024 bytes", is: hostile.ErrTooMuch},
		"without end":   {agent: checktest.Endless(strings.Repeat("x", 1<<16)), err: "read: the target sends too much: over 1024 bytes", is: hostile.ErrTooMuch},
		"resets":        {agent: reset, send: "x", err: "read: ", is: syscall.ECONNRESET},
		"hangs":         {agent: checktest.Hang, timeout: 300 * time.Millisecond, err: "read: no answer in time: context deadline exceeded", is: context.DeadlineExceeded},
		"drips on":      {agent: drip(strings.Repeat(" ", 10000)), timeout: 300 * time.Millisecond, err: "read: no answer in time: context deadline exceeded", is: context.DeadlineExceeded},
		"half a line":   {agent: func(c net.Conn) { says("up")(c); checktest.Hang(c) }, timeout: 300 * time.Millisecond, err: "read: no answer in time: context deadline exceeded", is: context.DeadlineExceeded},
		"waits for ask": {agent: func(c net.Conn) { io.ReadFull(c, make([]byte, 100)) }, send: "x", timeout: 300 * time.Millisecond, err: "read: no answer in time: context deadline exceeded", is: context.DeadlineExceeded},
	} {
		for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
			t.Run(name+" "+address, func(t *testing.T) {
				ln := ns.Listen("tcp", address)
				checktest.Serve(t, ln, tt.agent)
				timeout := tt.timeout
				if timeout == 0 {
					timeout = slow
				}
				want := tt.err
				if want != "" {
					want += "*"
				}
				r, err := checktest.RunUntil(t, Check{Send: tt.send}, env, ln.Addr().String(), timeout, want)
				// Which agent it is whoever shows it says.
				if !checktest.Says(err, want) || tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("want %q, got %v", want, err)
				}
				if r.Advice != tt.want || r.Latency <= 0 || (r.Detail != "") != (tt.err == "") {
					t.Errorf("want %+v, got %+v", tt.want, r)
				}
			})
		}
	}
}

// drip sends one byte after the other.
func drip(text string) func(net.Conn) {
	return func(c net.Conn) {
		for i := range len(text) {
			if _, err := io.WriteString(c, text[i:i+1]); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// reset waits for a byte, for the connection to be there at the other end, and
// cuts it amid an answer.
func reset(c net.Conn) {
	c.Read(make([]byte, 1))
	says("u")(c)
	c.(*net.TCPConn).SetLinger(0)
}

// TestNetnsAgentAway has agents that cannot be reached from a namespace that the
// check names itself.
func TestNetnsAgentAway(t *testing.T) {
	netnstest.Require(t, "netns")
	lb, router := netnstest.New(t), netnstest.New(t)
	netnstest.Veth(lb, "eth0", router, "eth0")
	lb.AddAddr("eth0", "10.0.0.1/24")
	router.AddAddr("eth0", "10.0.0.254/24")
	router.SetSysctl("net.ipv4.ip_forward", "1")
	lb.AddRoute("192.0.2.0/24", "10.0.0.254")
	lb.AddRoute("198.51.100.0/24", "10.0.0.254")
	if _, err := router.Run(exec.Command("ip", "route", "add", "blackhole", "198.51.100.0/24")); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		target string
		is     error
		local  bool
	}{
		"refuses":     {"10.0.0.254:80", syscall.ECONNREFUSED, false},
		"unreachable": {"192.0.2.1:80", syscall.ENETUNREACH, false},
		"black hole":  {"198.51.100.1:80", context.DeadlineExceeded, false},
		"no route":    {"203.0.113.1:80", syscall.ENETUNREACH, true},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := 20 * time.Second
			if tt.is == context.DeadlineExceeded {
				timeout = 500 * time.Millisecond
			}
			r, err := checktest.Run(t, Check{Via: healthcheck.Via{NetNS: lb.Path()}}, healthcheck.Env{}, tt.target, timeout)
			if !errors.Is(err, tt.is) || errors.Is(err, healthcheck.ErrLocal) != tt.local || !strings.HasPrefix(err.Error(), "connect "+tt.target+": ") {
				t.Errorf("want %v, got %v", tt.is, err)
			}
			if r.Advice != (healthcheck.Advice{}) {
				t.Errorf("want no advice, got %+v", r)
			}
		})
	}
}

// TestNetnsAgentMonitor has an agent that says one thing, then another, and goes
// away: its last words of each kind checktest.Hang, and it is never down.
func TestNetnsAgentMonitor(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	var answer atomic.Value
	answer.Store("up 50%\n")
	ln := ns.Listen("tcp", "127.0.0.1:80")
	checktest.Serve(t, ln, func(c net.Conn) { says(answer.Load().(string))(c) })
	var down atomic.Int32
	m := healthcheck.New(healthcheck.Options{Env: healthcheck.Env{Enter: ns.Do}, Notify: func(c healthcheck.Change) {
		if c.State == healthcheck.Down {
			down.Add(1)
		}
	}})
	probe := healthcheck.Probe{Method: Check{}, Target: netip.MustParseAddrPort("127.0.0.1:80"), Advisory: true,
		Timing: healthcheck.Timing{Interval: 50 * time.Millisecond, Timeout: 50 * time.Millisecond, Rise: 1, Fall: 1}}
	if err := m.Set([]healthcheck.Probe{probe}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	defer func() { cancel(); <-done }()
	wait := func(what string, reached func(healthcheck.Status) bool) {
		t.Helper()
		var s healthcheck.Status
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if s, _ = m.Status(probe.Key()); reached(s) {
				return
			}
		}
		t.Fatalf("%s: got %+v", what, s)
	}
	first := healthcheck.Advice{Health: healthcheck.SaysUp, Weight: percent(50)}
	wait("first words", func(s healthcheck.Status) bool { return s.Advice == first && s.State == healthcheck.Up })
	answer.Store("drain # backup\n")
	both := healthcheck.Advice{Health: healthcheck.SaysUp, Admin: healthcheck.SaysDrain, Weight: percent(50), Reason: "backup"}
	wait("further words", func(s healthcheck.Status) bool { return s.Advice == both })
	ln.Close()
	wait("failures", func(s healthcheck.Status) bool { return s.LastErr != nil && s.Streak > 3 })
	if s, _ := m.Status(probe.Key()); s.State != healthcheck.Up || s.Advice != both || down.Load() > 0 {
		t.Errorf("want up and %+v after failures, got %+v, and %d times down", both, s, down.Load())
	}
}

// TestNetnsAgentLeaksNothing makes a thousand checks that fail in each way.
func TestNetnsAgentLeaksNothing(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	for name, tt := range map[string]struct {
		agent   func(net.Conn)
		timeout time.Duration
	}{
		"wrong":   {says("nonsense\n"), 20 * time.Second},
		"floods":  {checktest.Endless(strings.Repeat("x", 1<<16)), 20 * time.Second},
		"hangs":   {checktest.Hang, 2 * time.Millisecond},
		"refuses": {nil, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			ln := ns.Listen("tcp", "127.0.0.1:0")
			if tt.agent == nil {
				ln.Close()
			} else {
				checktest.Serve(t, ln, tt.agent)
			}
			checktest.Leaks(t, 1000, func() {
				if _, err := checktest.Run(t, Check{Send: "x"}, healthcheck.Env{Enter: ns.Do}, ln.Addr().String(), tt.timeout); err == nil {
					t.Error("want an error")
				}
			})
		})
	}
}
