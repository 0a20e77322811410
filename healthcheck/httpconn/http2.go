package httpconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
)

// MaxHeader is how long the header of an answer may be, in bytes.
const MaxHeader = 64 << 10

// window is how many bytes of an answer may wait for a reader.
const window = 64 << 10

// ErrNoHTTP2 is the error of a server that does not agree to HTTP/2.
var ErrNoHTTP2 = errors.New("the server does not agree to HTTP/2 (ALPN)")

// NewHTTP2 returns a client of the server at the other end of conn: a *tls.Conn,
// which must have agreed to "h2", or a connection in the clear to a server that is
// known to speak HTTP/2. Nothing is decompressed and no redirect is followed. The
// caller closes the client, and conn as well. ctx bounds NewHTTP2 and not the
// client.
func NewHTTP2(ctx context.Context, conn net.Conn) (*http.ClientConn, error) {
	dial := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	t := &http.Transport{
		DialContext:            dial,
		DialTLSContext:         dial,
		DisableCompression:     true,
		MaxResponseHeaderBytes: MaxHeader,
		Protocols:              new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: window,
			MaxReceiveBufferPerStream:     window,
			MaxReadFrameSize:              16 << 10,
		},
	}
	scheme := "http"
	if secure, ok := conn.(*tls.Conn); ok {
		if secure.ConnectionState().NegotiatedProtocol != "h2" {
			return nil, ErrNoHTTP2
		}
		scheme = "https"
		t.Protocols.SetHTTP2(true)
	} else {
		t.Protocols.SetUnencryptedHTTP2(true)
	}
	// The address is not dialled: the connection is there.
	return t.NewClientConn(ctx, scheme, "probe:0")
}
