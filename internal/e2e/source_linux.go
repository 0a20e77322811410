package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// silenceTimeout bounds the wait for an answer of a Flow where silence is an
// outcome.
const silenceTimeout = time.Second

// Flow is a UDP socket of the client: all that it sends has the same source
// port.
type Flow struct{ conn net.Conn }

// OpenFlow opens a socket to a UDP address.
func (l *Lab) OpenFlow(address string) (*Flow, error) {
	c, err := l.Client.DialContext(context.Background(), "udp", address)
	return &Flow{c}, err
}

// Ask sends one packet and returns the name of the server that answers in time.
func (f *Flow) Ask(timeout time.Duration) (string, error) {
	f.conn.SetDeadline(time.Now().Add(timeout))
	if _, err := f.conn.Write([]byte("who")); err != nil {
		return "", err
	}
	b := make([]byte, 64)
	n, err := f.conn.Read(b)
	return string(b[:n]), err
}

// Close closes the socket.
func (f *Flow) Close() error { return f.conn.Close() }

// GetFrom makes an HTTP request from the given source port and returns the
// server's name, and whether the first packet had to be sent again. The server
// ends the connection, so that the client can use the port again at once.
func (l *Lab) GetFrom(ctx context.Context, port int, host string) (name string, late bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, err := l.dialFrom(ctx, port, host)
	if err != nil {
		return "", false, err
	}
	defer c.Close()
	if late, err = sentAgain(c); err != nil {
		return "", false, err
	}
	deadline, _ := ctx.Deadline()
	c.SetDeadline(deadline)
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", host); err != nil {
		return "", late, err
	}
	b, err := io.ReadAll(io.LimitReader(c, 1<<16))
	if err != nil {
		return "", late, err
	}
	_, body, ok := strings.Cut(string(b), "\r\n\r\n")
	if !ok || !strings.HasPrefix(string(b), "HTTP/1.0 200") {
		return "", late, fmt.Errorf("get %s: %q", host, b)
	}
	return strings.TrimSpace(body), late, nil
}

// dialFrom connects from a source port. The last packet of the connection before may
// still be under way.
func (l *Lab) dialFrom(ctx context.Context, port int, host string) (c net.Conn, err error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{Port: port}, Control: reuseAddr}
	err = l.Client.WhenFree(func() (err error) {
		c, err = d.DialContext(ctx, "tcp", host)
		return err
	})
	return c, err
}

func reuseAddr(_, _ string, raw syscall.RawConn) error {
	var err error
	return errors.Join(raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}), err)
}

// sentAgain reports whether a new connection has sent anything twice.
func sentAgain(c net.Conn) (bool, error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false, err
	}
	var info *unix.TCPInfo
	if e := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); e != nil {
		return false, e
	}
	if err != nil {
		return false, err
	}
	return info.Total_retrans > 0, nil
}
