package e2e

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/userspace"
	"github.com/lbd-project/lbd/ipvs"
)

// connectionEngine is what lists connections of either engine.
type connectionEngine interface {
	Apply(ctx context.Context, ops []ipvs.Op) error
	Connections(ctx context.Context) iter.Seq2[ipvs.Connection, error]
}

// TestKernelStates sees which names the kernel has for the states of connections
// that end in one way and another.
func TestKernelStates(t *testing.T) {
	netnstest.Require(t, "netns", "ipvs")
	l := NewLab(t, Masq, 2)
	c, err := ipvs.Open(ipvs.WithNetNS(l.Balancer.FD()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	testStates(t, l, c)
}

// TestNetnsStates sees that the userspace engine has the same names as the kernel.
func TestNetnsStates(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	testUserspaceStates(t)
}

// TestKernelStatesUserspace is TestNetnsStates on the kernel that has IPVS.
func TestKernelStatesUserspace(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	testUserspaceStates(t)
}

func testUserspaceStates(t *testing.T) {
	t.Helper()
	l := NewLab(t, Masq, 2)
	e, err := userspace.Open(t.Context(), l.userspaceOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	testStates(t, l, e)
}

func testStates(t *testing.T, l *Lab, e connectionEngine) {
	t.Helper()
	const port = 9000
	l.AddVIP(VIP4)
	vip := netip.AddrPortFrom(netip.MustParseAddr(VIP4), port)
	svc := ipvs.Service{ServiceKey: ipvs.AddrService(ipvs.TCP, vip), Scheduler: "wlc"}
	d := ipvs.Destination{Address: netip.AddrPortFrom(l.Servers[0].V4, port), Weight: 1}
	err := e.Apply(t.Context(), []ipvs.Op{
		{Kind: ipvs.OpAddService, Service: svc}, {Kind: ipvs.OpAddDestination, Service: svc, Destination: d},
	})
	if err != nil {
		t.Fatal(err)
	}
	ln := l.Servers[0].NS.Listen("tcp", fmt.Sprintf(":%d", port))
	defer ln.Close()

	closeWrite := func(c *net.TCPConn) { c.CloseWrite() }
	reset := func(c *net.TCPConn) {
		c.SetLinger(0)
		c.Close()
	}
	for _, tt := range []struct {
		name           string
		client, server func(*net.TCPConn)
		serverFirst    bool
		want           string
	}{
		{"open", nil, nil, false, "ESTABLISHED"},
		{"the client closes", closeWrite, nil, false, "CLOSE_WAIT"},
		{"the server closes", nil, closeWrite, false, "FIN_WAIT"},
		{"the client closes first", closeWrite, closeWrite, false, "TIME_WAIT"},
		{"the server closes first", closeWrite, closeWrite, true, "TIME_WAIT"},
		{"the client resets", reset, nil, false, "CLOSE"},
		{"the server resets", nil, reset, false, "CLOSE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			conn, err := l.Client.DialContext(ctx, "tcp", vip.String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			peer, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			local := netip.MustParseAddrPort(conn.LocalAddr().String())
			// Both know that it is open, and have nothing unread.
			deadline := time.Now().Add(30 * time.Second)
			for _, c := range []net.Conn{conn, peer} {
				c.SetDeadline(deadline)
			}
			io.WriteString(conn, "x")
			if _, err := io.ReadFull(peer, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			end := func(c net.Conn, how func(*net.TCPConn), other net.Conn) {
				if how == nil {
					return
				}
				how(c.(*net.TCPConn))
				other.Read(make([]byte, 1)) // until it has arrived
			}
			if tt.serverFirst {
				end(peer, tt.server, conn)
				end(conn, tt.client, peer)
			} else {
				end(conn, tt.client, peer)
				end(peer, tt.server, conn)
			}
			eventually(t, func() error {
				var lines []string
				for c, err := range e.Connections(ctx) {
					if err != nil {
						return err
					}
					if c.Client == local && c.Virtual == vip && c.Server == d.Address && c.State == tt.want {
						return nil
					}
					lines = append(lines, fmt.Sprintf("%v %v %s", c.Client, c.Server, c.State))
				}
				return fmt.Errorf("want %v in state %s, got\n%s", local, tt.want, strings.Join(lines, "\n"))
			})
		})
	}
}
