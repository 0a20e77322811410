package netnstest

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// freeTimeout bounds the wait of WhenFree.
const freeTimeout = 10 * time.Second

// WhenFree calls open inside the namespace until it finds its local address free, for a
// while. An address is not free at once when its socket was closed: a program that is
// being started, such as the nft of a parallel test, has a copy of the socket until it
// executes.
func (n *NS) WhenFree(open func() error) error {
	for deadline := time.Now().Add(freeTimeout); ; time.Sleep(time.Millisecond) {
		err := n.Do(open)
		// The latter is said of a connection between the same two addresses.
		used := errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL)
		if !used || time.Now().After(deadline) {
			return err
		}
	}
}

// Listen listens inside the namespace until the test ends, at an address that is free
// or soon will be.
func (n *NS) Listen(network, address string) net.Listener {
	n.t.Helper()
	var ln net.Listener
	err := n.WhenFree(func() (err error) {
		ln, err = net.Listen(network, address)
		return err
	})
	if err != nil {
		n.t.Fatalf("listen: %v", err)
	}
	n.t.Cleanup(func() { ln.Close() })
	return ln
}

// ListenPacket opens a datagram socket inside the namespace until the test ends, at an
// address that is free or soon will be.
func (n *NS) ListenPacket(network, address string) net.PacketConn {
	n.t.Helper()
	var pc net.PacketConn
	err := n.WhenFree(func() (err error) {
		pc, err = net.ListenPacket(network, address)
		return err
	})
	if err != nil {
		n.t.Fatalf("listen: %v", err)
	}
	n.t.Cleanup(func() { pc.Close() })
	return pc
}

// DialContext connects from inside the namespace to a literal address. It has
// the form that http.Transport wants.
func (n *NS) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var c net.Conn
	err := n.Do(func() (err error) {
		var d net.Dialer
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}
