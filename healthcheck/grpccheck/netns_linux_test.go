package grpccheck

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/certtest"
	"github.com/lbd-project/lbd/internal/checktest"
)

// TestNetnsServers probes real servers over a network, and addresses that none
// answers from.
func TestNetnsServers(t *testing.T) {
	lab := checktest.NewLab(t)
	ca := certtest.New(t)
	cert := ca.Issue(t, certtest.Spec{Names: []string{"10.0.0.2", "fd00::2"}})
	fine := answer(serving, "Grpc-Status", "0")
	slow := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(50 * time.Millisecond)
		fine(w, r)
	}
	slower := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(2 * time.Second)
		fine(w, r)
	}
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	down := answer("\x00\x00\x00\x00\x02\x08\x02", "Grpc-Status", "0")
	for i, h := range []http.HandlerFunc{fine, slow, hang, down, slower} {
		for _, ip := range []string{"10.0.0.2", "fd00::2"} {
			port := string('1' + rune(i))
			serveOn(t, lab.Server.Listen("tcp", net.JoinHostPort(ip, port)), h, nil)
			serveOn(t, lab.Server.Listen("tcp", net.JoinHostPort(ip, "1"+port)), h, &cert)
		}
	}
	const short, long = 200 * time.Millisecond, 20 * time.Second
	server := []string{"10.0.0.2", "fd00::2"}
	tests := []struct {
		name    string
		hosts   []string
		port    string
		timeout time.Duration
		want    error // nil with text is any
		text    string
	}{
		{"healthy", server, "1", long, nil, ""},
		{"slow", server, "2", long, nil, ""},
		{"too slow", server, "5", 30 * time.Millisecond, context.DeadlineExceeded, "no answer in time"},
		{"hangs", server, "3", short, context.DeadlineExceeded, "no answer in time"},
		{"not serving", server, "4", long, nil, "the server says NOT_SERVING"},
		{"refuses", server, "6", long, unix.ECONNREFUSED, "connection refused"},
		{"unreachable", []string{checktest.Unreachable4}, "1", long, unix.EHOSTUNREACH, "no route to host"},
		{"unreachable", []string{checktest.Unreachable6}, "1", long, unix.ENETUNREACH, "network is unreachable"},
		{"black hole", []string{checktest.BlackHole4, checktest.BlackHole6}, "1", short, context.DeadlineExceeded, "no answer in time"},
		{"no such host", []string{checktest.Absent4, checktest.Absent6}, "1", long, unix.EHOSTUNREACH, "no route to host"},
		{"no route", []string{"203.0.113.1"}, "1", long, healthcheck.ErrLocal, "fault of this host"},
	}
	options := &tlsopt.Options{CA: ca.PEM()}
	for _, tt := range tests {
		for _, host := range tt.hosts {
			for port, o := range map[string]*tlsopt.Options{tt.port: nil, "1" + tt.port: options} {
				t.Run(tt.name+" "+net.JoinHostPort(host, port), func(t *testing.T) {
					t.Parallel()
					_, err := checktest.Run(t, Check{TLS: o}, lab.Env(), net.JoinHostPort(host, port), tt.timeout)
					text := checktest.Text(err)
					if (err == nil) != (tt.text == "") || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(text, tt.text) {
						t.Errorf("want %v, %q, got %v", tt.want, tt.text, err)
					}
				})
			}
		}
	}
}
