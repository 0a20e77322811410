package e2e

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// TestNetnsServerKill kills a server while clients connect to it.
func TestNetnsServerKill(t *testing.T) {
	netnstest.Require(t, "netns")
	l := NewLab(t, Masq, 1)
	s := l.Servers[0]
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	addr := net.JoinHostPort(s.V4.String(), "80")
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if c, err := l.Balancer.DialContext(ctx, "tcp", addr); err == nil {
					c.Close()
				}
			}
		})
	}
	for range 100 {
		killed := make(chan struct{})
		go func() {
			s.Kill()
			close(killed)
		}()
		select {
		case <-killed:
		case <-time.After(10 * time.Second):
			t.Fatal("the server does not end")
		}
		s.Open(HTTPPort)
		time.Sleep(2 * time.Millisecond)
	}
}
