package userspace

import (
	"context"
	"net"
	"testing"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/ipvs"
)

// TestNetnsStaleSocket uses a client's port again while its real server still
// has the socket of the last connection, which conntrack forgot in the middle of
// it. The server answers the SYN for the old connection, the client's RST ends
// that, and its SYN comes once more: one connection.
func TestNetnsStaleSocket(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.open()
	svc, ops := l.service(ipvs.TCP, ipvs.IPv4)
	l.apply(ops...)
	const port = 7100
	c, err := l.dialFrom(port, svc)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.engine.table.Delete(context.Background(), conntrack.Filter{Mark: l.engine.marks.of(1), MarkMask: l.engine.marks.mask}); err != nil {
		t.Fatal(err)
	}
	l.eventually(svc, map[string]string{"s1": "0/0/0"})
	// The RST finds no connection to go to.
	if err := c.Conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	c, err = l.dialFrom(port, svc)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l.eventually(svc, map[string]string{"s1": "1/0/0"})
	if s := l.stats(svc); s.Connections != 2 {
		t.Errorf("connections: want 2, got %d", s.Connections)
	}
}
