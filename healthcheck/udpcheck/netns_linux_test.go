package udpcheck

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/checktest"
)

// TestNetnsAsk probes real servers over a real network, and addresses that none
// answers from.
func TestNetnsAsk(t *testing.T) {
	lab := checktest.NewLab(t)
	for _, host := range []string{"10.0.0.2", "fd00::2"} {
		for port, answer := range map[string]func(string, func(string)){
			"1": echo,
			"2": func(d string, reply func(string)) { time.Sleep(50 * time.Millisecond); reply(d) },
			"3": silent,
			"6": func(d string, reply func(string)) { time.Sleep(2 * time.Second); reply(d) },
			"4": func(_ string, reply func(string)) { reply("ping") },
		} {
			serve(t, lab.Server.ListenPacket("udp", net.JoinHostPort(host, port)), answer)
		}
	}
	const short, long = 200 * time.Millisecond, 20 * time.Second
	server := []string{"10.0.0.2", "fd00::2"}
	wrong := errors.New("wrong")
	tests := []struct {
		name    string
		hosts   []string
		port    string
		require bool
		timeout time.Duration
		want    error
		text    string
	}{
		{"healthy", server, "1", true, long, nil, ""},
		{"slow", server, "2", true, long, nil, ""},
		{"too slow", server, "6", true, 20 * time.Millisecond, context.DeadlineExceeded, ""},
		{"silent, allowed", server, "3", false, 2 * time.Second, nil, ""},
		{"silent", server, "3", true, short, context.DeadlineExceeded, ""},
		{"wrong answer", server, "4", false, long, wrong, ""},
		{"refuses", server, "5", false, long, unix.ECONNREFUSED, "says port unreachable"},
		{"unreachable", []string{checktest.Unreachable4}, "1", false, long, unix.EHOSTUNREACH, "ICMP from 10.0.0.2 says host unreachable"},
		{"unreachable", []string{checktest.Unreachable6}, "1", false, long, unix.ENETUNREACH, "ICMP from fd00::2 says network unreachable"},
		{"black hole", []string{checktest.BlackHole4, checktest.BlackHole6}, "1", true, short, context.DeadlineExceeded, ""},
		{"no route", []string{"203.0.113.1", "2001:db8:9::1"}, "1", false, long, healthcheck.ErrLocal, ""},
		// A host that is off: nothing comes back from the network at all, and
		// silence would be success. The kernel's own settings, no faster ones:
		// they are what NeighbourTimeout is about.
		{"off", []string{checktest.Absent4, checktest.Absent6}, "1", false, NeighbourTimeout, unix.EHOSTUNREACH, "this host (nobody answers for the address on its network) says host unreachable"},
	}
	for _, tt := range tests {
		for _, host := range tt.hosts {
			t.Run(tt.name+" "+host, func(t *testing.T) {
				// Two ICMP errors for one client at once, the first that there are, may
				// cost one of them: the kernel's limits of their rate (ip_error, and
				// icmpv4_xrlim_allow) share a count without a lock. This one comes alone.
				if tt.name != "unreachable" {
					t.Parallel()
				}
				c := Check{Payload: []byte("pong"), Expect: pong, RequireReply: tt.require}
				run := func() error {
					_, err := checktest.Run(t, c, lab.Env(), net.JoinHostPort(host, tt.port), tt.timeout)
					return err
				}
				var err error
				if tt.name == "silent, allowed" {
					err = inTime(run)
				} else {
					err = run()
				}
				if tt.want == wrong && err == nil || tt.want != wrong && !errors.Is(err, tt.want) {
					t.Errorf("want %v, got %v", tt.want, err)
				}
				if !strings.Contains(checktest.Text(err), tt.text) {
					t.Errorf("want %q, got %v", tt.text, err)
				}
			})
		}
	}
}

// TestNetnsFirewall has this host's own rules refuse the datagram.
func TestNetnsFirewall(t *testing.T) {
	lab := checktest.NewLab(t)
	if _, err := lab.Balancer.Run(exec.Command("nft", "add table inet f; add chain inet f out { type filter hook output priority 0; }; add rule inet f out udp dport 9 drop")); err != nil {
		t.Fatal(err)
	}
	_, err := checktest.Run(t, Check{}, lab.Env(), "10.0.0.2:9", 20*time.Second)
	if !errors.Is(err, healthcheck.ErrLocal) || checktest.Text(err) != "send: write: operation not permitted (fault of this host)" {
		t.Errorf("want a fault of this host, got %v", err)
	}
}
