package smtpcheck

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/certtest"
	"github.com/lbd-project/lbd/internal/checktest"
)

// TestNetnsTalk probes real servers over a real network, and addresses that none
// answers from.
func TestNetnsTalk(t *testing.T) {
	lab := checktest.NewLab(t)
	for port, answer := range map[string]func(net.Conn){
		"1": mail().serve,
		"2": func(c net.Conn) { time.Sleep(50 * time.Millisecond); mail().serve(c) },
		"3": func(c net.Conn) { mail().serve(slowly{c}) },
		"4": checktest.Close,
		"5": mail("greeting", "554 no\r\n").serve,
		"6": checktest.Hang,
		"8": func(c net.Conn) { time.Sleep(2 * time.Second); mail().serve(c) },
	} {
		checktest.Serve(t, lab.Server.Listen("tcp", net.JoinHostPort("10.0.0.2", port)), answer)
		checktest.Serve(t, lab.Server.Listen("tcp", net.JoinHostPort("fd00::2", port)), answer)
	}
	server := []string{"10.0.0.2", "fd00::2"}
	some := errors.New("some error")
	tests := []struct {
		name    string
		hosts   []string
		port    string
		timeout time.Duration
		want    error
	}{
		{"healthy", server, "1", long, nil},
		{"slow", server, "2", long, nil},
		{"too slow", server, "8", 20 * time.Millisecond, context.DeadlineExceeded},
		{"drip", server, "3", long, nil},
		{"closes early", server, "4", long, some},
		{"wrong answer", server, "5", long, some},
		{"hangs", server, "6", short, context.DeadlineExceeded},
		{"refuses", server, "7", long, unix.ECONNREFUSED},
		{"unreachable", []string{checktest.Unreachable4}, "1", long, unix.EHOSTUNREACH},
		{"unreachable", []string{checktest.Unreachable6}, "1", long, unix.ENETUNREACH},
		{"black hole", []string{checktest.BlackHole4, checktest.BlackHole6}, "1", short, context.DeadlineExceeded},
		{"no route", []string{"203.0.113.1", "2001:db8:9::1"}, "1", long, healthcheck.ErrLocal},
	}
	for _, tt := range tests {
		for _, host := range tt.hosts {
			t.Run(tt.name+" "+host, func(t *testing.T) {
				t.Parallel()
				_, err := checktest.Run(t, Check{}, lab.Env(), net.JoinHostPort(host, tt.port), tt.timeout)
				if tt.want == some && err == nil || tt.want != some && !errors.Is(err, tt.want) {
					t.Errorf("want %v, got %v", tt.want, err)
				}
			})
		}
	}
}

// TestNetnsPoliteClose has no server meet a reset, and leaves nothing in
// TIME_WAIT here where the server lets go: the probe waits for it to close first.
func TestNetnsPoliteClose(t *testing.T) {
	lab := checktest.NewLab(t)
	ca := certtest.New(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, certtest.Spec{Names: []string{"10.0.0.2"}}).TLS}}
	checktest.Serve(t, lab.Server.Listen("tcp", "10.0.0.2:25"), mail().over(config).serve)
	checktest.Serve(t, lab.Server.Listen("tcp", "10.0.0.2:26"), mail("greeting", "554 no\r\n").serve)
	checktest.Serve(t, lab.Server.Listen("tcp", "10.0.0.2:465"), mail().over(config).fromStart().serve)
	o := &tlsopt.Options{CA: ca.PEM()}
	const n = 20
	for _, tt := range []struct {
		target string
		check  Check
		ok     bool
	}{
		{"10.0.0.2:25", Check{}, true},
		{"10.0.0.2:25", Check{TLS: o, StartTLS: true}, true},
		{"10.0.0.2:26", Check{}, false},
		{"10.0.0.2:465", Check{TLS: o}, true},
	} {
		before := checktest.Resets(t, lab.Balancer)
		for range n {
			if _, err := checktest.Run(t, tt.check, lab.Env(), tt.target, long); (err == nil) != tt.ok {
				t.Fatalf("%s: want healthy %v, got %v", tt.target, tt.ok, err)
			}
		}
		if got := checktest.Resets(t, lab.Balancer) - before; got != 0 {
			t.Errorf("%s: want no reset, got %d", tt.target, got)
		}
	}
	waiting, err := lab.Balancer.Run(exec.Command("ss", "-Htn", "state", "time-wait"))
	if err != nil {
		t.Fatal(err)
	}
	// A server that a busy machine holds up for 200 ms is no fault.
	if got := strings.Count(waiting, "\n"); got > n/4 {
		t.Errorf("want nothing in TIME_WAIT, got %d:\n%s", got, waiting)
	}
}
