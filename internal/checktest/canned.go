package checktest

import (
	"bytes"
	"net"
	"time"
)

// Canned returns a connection whose other end takes everything, says b and closes.
func Canned(b []byte) net.Conn { return &canned{in: bytes.NewReader(b)} }

type canned struct{ in *bytes.Reader }

func (c *canned) Read(p []byte) (int, error)     { return c.in.Read(p) }
func (*canned) Write(p []byte) (int, error)      { return len(p), nil }
func (*canned) Close() error                     { return nil }
func (*canned) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*canned) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*canned) SetDeadline(time.Time) error      { return nil }
func (*canned) SetReadDeadline(time.Time) error  { return nil }
func (*canned) SetWriteDeadline(time.Time) error { return nil }
