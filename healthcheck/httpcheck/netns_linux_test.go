package httpcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/certtest"
	"github.com/lbd-project/lbd/internal/checktest"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// TestNetnsServers has real servers behind a network, of every kind and mood.
func TestNetnsServers(t *testing.T) {
	lab := checktest.NewLab(t)
	ca := certtest.New(t)
	cert := ca.Issue(t, certtest.Spec{Names: []string{"10.0.0.2", "fd00::2"}})
	o := &tlsopt.Options{CA: ca.PEM()}
	stuck := make(chan struct{})
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			time.Sleep(200 * time.Millisecond)
		case "/slower":
			time.Sleep(2 * time.Second)
		case "/stuck":
			select {
			case <-stuck:
			case <-r.Context().Done():
			}
		case "/down":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(w, "ready in %s\n", r.URL.Path)
	}
	defer close(stuck)
	for _, ip := range []string{"10.0.0.2", "fd00::2"} {
		serveOn(t, lab.Server.Listen("tcp", net.JoinHostPort(ip, "80")), handler, nil)
		serveOn(t, lab.Server.Listen("tcp", net.JoinHostPort(ip, "443")), handler, &cert)
	}
	get := func(path string) Check {
		return Check{Requests: []Request{{Path: path, Match: regexp.MustCompile("ready")}}}
	}
	for _, tt := range []struct {
		path    string
		timeout time.Duration
		want    string
	}{
		{"/fine", 10 * time.Second, ""},
		{"/slow", 10 * time.Second, ""},
		{"/slower", 100 * time.Millisecond, "GET /slower: no answer in time: context deadline exceeded"},
		{"/stuck", 100 * time.Millisecond, "GET /stuck: no answer in time: context deadline exceeded"},
		{"/down", 10 * time.Second, "GET /down: status 503 is not 200-299"},
	} {
		for _, k := range kinds {
			for _, ip := range []string{"10.0.0.2", "fd00::2"} {
				c, port := get(tt.path), "80"
				if c.Version = k.version; k.tls {
					c.TLS, port = o, "443"
				}
				_, err := checktest.Run(t, c, lab.Env(), net.JoinHostPort(ip, port), tt.timeout)
				// A busy machine may spend 100 ms on a handshake.
				early := tt.timeout < time.Second && errors.Is(err, context.DeadlineExceeded)
				if checktest.Text(err) != tt.want && !early {
					t.Errorf("%v of %s, %s: want %q, got %v", k, ip, tt.path, tt.want, err)
				}
			}
		}
	}
}

// TestNetnsUnreachable has targets that never answer, and the own host's faults.
func TestNetnsUnreachable(t *testing.T) {
	lab := checktest.NewLab(t)
	for _, tt := range []struct {
		target string
		want   error
		local  bool
	}{
		{"10.0.0.2:81", unix.ECONNREFUSED, false},
		{"[fd00::2]:81", unix.ECONNREFUSED, false},
		{checktest.BlackHole4 + ":80", context.DeadlineExceeded, false},
		{"[" + checktest.BlackHole6 + "]:80", context.DeadlineExceeded, false},
		{checktest.Unreachable4 + ":80", unix.EHOSTUNREACH, false},
		{"[" + checktest.Unreachable6 + "]:80", unix.ENETUNREACH, false},
		{checktest.Absent4 + ":80", unix.EHOSTUNREACH, false},
		{"203.0.113.1:80", unix.ENETUNREACH, true},
	} {
		for _, version := range []string{Version11, Version2} {
			timeout := 20 * time.Second
			if tt.want == context.DeadlineExceeded {
				timeout = 100 * time.Millisecond
			}
			_, err := checktest.Run(t, Check{Version: version}, lab.Env(), tt.target, timeout)
			if !errors.Is(err, tt.want) || errors.Is(err, healthcheck.ErrLocal) != tt.local {
				t.Errorf("HTTP/%s of %s: want %v, got %v", version, tt.target, tt.want, err)
			}
			if !strings.HasPrefix(checktest.Text(err), "connect "+tt.target+": ") {
				t.Errorf("HTTP/%s of %s: got %q", version, tt.target, err)
			}
		}
	}
}

// TestNetnsDies has a server whose machine goes away in the middle of an answer.
func TestNetnsDies(t *testing.T) {
	lab := checktest.NewLab(t)
	checktest.Serve(t, lab.Server.Listen("tcp", "10.0.0.2:80"), func(c net.Conn) {
		readRequest(c)
		io.WriteString(c, fine+"Content-Length: 10\r\n\r\nready")
		lab.Server.Down("eth0")
		<-t.Context().Done()
	})
	_, err := checktest.Run(t, Check{}, lab.Env(), "10.0.0.2:80", time.Second)
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "GET /: read body: no answer in time: context deadline exceeded" {
		t.Errorf("want the deadline, got %v", err)
	}
	// Nothing keeps the connection: it was reset, not left to retransmit a FIN.
	if n := sockets(t, lab.Balancer, 80); len(n) != 0 {
		t.Errorf("sockets left: %v", n)
	}
}

// TestNetnsLeavesNothing makes checks of HTTP/1.x, after which neither a TIME_WAIT
// nor anything else is left at the balancer, and no connection was reset.
func TestNetnsLeavesNothing(t *testing.T) {
	lab := checktest.NewLab(t)
	ca := certtest.New(t)
	cert := ca.Issue(t, certtest.Spec{Names: []string{"10.0.0.2"}})
	o := &tlsopt.Options{CA: ca.PEM()}
	handler := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Repeat("x", 10000)) }
	serveOn(t, lab.Server.Listen("tcp", "10.0.0.2:80"), handler, nil)
	serveOn(t, lab.Server.Listen("tcp", "10.0.0.2:443"), handler, &cert)
	checktest.Serve(t, lab.Server.Listen("tcp", "10.0.0.2:81"), func(c net.Conn) {
		readRequest(c)
		io.WriteString(c, fine+"Connection: close\r\nContent-Length: 2\r\n\r\nok")
		time.Sleep(5 * time.Millisecond)
	})
	bad := Check{Requests: []Request{{Path: "/", Status: StatusRanges{{500, 500}}}}}
	for _, version := range []string{Version10, Version11} {
		for range 50 {
			if _, err := checktest.Run(t, bad, lab.Env(), "10.0.0.2:81", 10*time.Second); err == nil {
				t.Fatal("status 200 is taken for 500")
			}
			for _, target := range []string{"10.0.0.2:80", "10.0.0.2:81"} {
				if _, err := checktest.Run(t, Check{Version: version}, lab.Env(), target, 10*time.Second); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := checktest.Run(t, Check{Version: version, TLS: o}, lab.Env(), "10.0.0.2:443", 10*time.Second); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, port := range []uint16{80, 81, 443} {
		// A few, because this process was too slow to see the server close.
		if n := sockets(t, lab.Balancer, port); len(n) > 5 {
			t.Errorf("port %d: %d sockets left, in states %v", port, len(n), n)
		}
	}
	if n := checktest.Resets(t, lab.Balancer); n > 5 {
		t.Errorf("%d connections were reset", n)
	}
}

// sockets returns the states of the TCP sockets whose remote port is given.
func sockets(t *testing.T, ns *netnstest.NS, port uint16) (states []string) {
	t.Helper()
	err := ns.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/tcp")
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", port)) {
				states = append(states, f[3])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return states
}
