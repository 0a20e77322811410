package netnstest

import (
	"context"
	"net"
)

// Listen listens inside the namespace until the test ends.
func (n *NS) Listen(network, address string) net.Listener {
	n.t.Helper()
	var ln net.Listener
	err := n.Do(func() (err error) {
		ln, err = net.Listen(network, address)
		return err
	})
	if err != nil {
		n.t.Fatalf("listen: %v", err)
	}
	n.t.Cleanup(func() { ln.Close() })
	return ln
}

// ListenPacket opens a datagram socket inside the namespace until the test ends.
func (n *NS) ListenPacket(network, address string) net.PacketConn {
	n.t.Helper()
	var pc net.PacketConn
	err := n.Do(func() (err error) {
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
