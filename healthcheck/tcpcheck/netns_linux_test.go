package tcpcheck

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
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
	slow := func(c net.Conn) {
		time.Sleep(50 * time.Millisecond)
		lines("", map[string]string{"PING": "+PONG\n"})(c)
	}
	for port, answer := range map[string]func(net.Conn){
		"1": lines("", map[string]string{"PING": "+PONG\n"}),
		"2": slow,
		"3": checktest.Drip("+PONG\n", 5*time.Millisecond),
		"4": checktest.Close,
		"5": lines("", map[string]string{"PING": "-ERR\n"}),
		"6": checktest.Hang,
		"8": func(c net.Conn) { time.Sleep(2 * time.Second); slow(c) },
	} {
		checktest.Serve(t, lab.Server.Listen("tcp", net.JoinHostPort("10.0.0.2", port)), answer)
		checktest.Serve(t, lab.Server.Listen("tcp", net.JoinHostPort("fd00::2", port)), answer)
	}
	const short, long = 300 * time.Millisecond, 20 * time.Second
	server := []string{"10.0.0.2", "fd00::2"}
	any := errors.New("any")
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
		{"closes early", server, "4", long, any},
		{"wrong answer", server, "5", long, any},
		{"hangs", server, "6", short, context.DeadlineExceeded},
		{"refuses", server, "7", long, unix.ECONNREFUSED},
		{"unreachable", []string{checktest.Unreachable4}, "1", long, unix.EHOSTUNREACH},
		{"unreachable", []string{checktest.Unreachable6}, "1", long, unix.ENETUNREACH},
		{"black hole", []string{checktest.BlackHole4, checktest.BlackHole6}, "1", short, context.DeadlineExceeded},
		{"no such host", []string{checktest.Absent4, checktest.Absent6}, "1", long, unix.EHOSTUNREACH},
		{"no route", []string{"203.0.113.1", "2001:db8:9::1"}, "1", long, healthcheck.ErrLocal},
	}
	for _, tt := range tests {
		for _, host := range tt.hosts {
			t.Run(tt.name+" "+host, func(t *testing.T) {
				t.Parallel()
				_, err := checktest.Run(t, Check{Steps: ping}, lab.Env(), net.JoinHostPort(host, tt.port), tt.timeout)
				if tt.want == any && err == nil || tt.want != any && !errors.Is(err, tt.want) {
					t.Errorf("want %v, got %v", tt.want, err)
				}
			})
		}
	}
}

// TestNetnsPoliteClose counts the resets that checks send to servers which say
// more than the check wants to know, in the clear and with TLS: none.
func TestNetnsPoliteClose(t *testing.T) {
	lab := checktest.NewLab(t)
	ca := certtest.New(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, certtest.Spec{Names: []string{"10.0.0.2"}}).TLS}}
	chatty := checktest.Say("220 hello\r\n" + strings.Repeat("and more\r\n", 2000))
	checktest.Serve(t, lab.Server.Listen("tcp", "10.0.0.2:25"), chatty)
	checktest.Serve(t, lab.Server.Listen("tcp", "10.0.0.2:465"), secure(config, chatty))
	checktest.Serve(t, lab.Server.Listen("tcp", "10.0.0.2:443"), secure(config, checktest.Hang))
	o := &tlsopt.Options{CA: ca.PEM()}
	for _, tt := range []struct {
		target string
		check  Check
		ok     bool
	}{
		{"10.0.0.2:25", Check{}, true},
		{"10.0.0.2:25", Check{Steps: []Step{{Expect: text("220")}}}, true},
		{"10.0.0.2:25", Check{Steps: []Step{{Expect: expectStart("554")}}}, false},
		{"10.0.0.2:465", Check{TLS: o, Steps: []Step{{Expect: text("220")}}}, true},
		{"10.0.0.2:465", Check{TLS: o, Steps: []Step{{Expect: expectStart("554")}}}, false},
		{"10.0.0.2:443", Check{TLS: o}, true},
		{"10.0.0.2:443", Check{TLS: &tlsopt.Options{}}, false},
	} {
		before := checktest.Resets(t, lab.Balancer)
		for range 20 {
			if _, err := checktest.Run(t, tt.check, lab.Env(), tt.target, 20*time.Second); (err == nil) != tt.ok {
				t.Fatalf("%s: want healthy %v, got %v", tt.target, tt.ok, err)
			}
		}
		if got := checktest.Resets(t, lab.Balancer) - before; got != 0 {
			t.Errorf("%s, healthy %v: want no reset, got %d", tt.target, tt.ok, got)
		}
	}
}
