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

// HTTP2 is a client on one connection.
type HTTP2 struct {
	client *http.ClientConn
	conn   *witness
}

// NewHTTP2 returns a client of the server at the other end of conn: a *tls.Conn,
// which must have agreed to "h2", or a connection in the clear to a server that is
// known to speak HTTP/2. The caller closes the client, and conn as well. ctx
// bounds NewHTTP2 and not the client.
func NewHTTP2(ctx context.Context, conn net.Conn) (*HTTP2, error) {
	if secure, ok := conn.(*tls.Conn); ok && secure.ConnectionState().NegotiatedProtocol != "h2" {
		return nil, ErrNoHTTP2
	}
	w := &witness{Conn: conn, over: make(chan struct{})}
	t := &http.Transport{
		// The connection is there, and secured if it has to be.
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return w, nil },
		DisableCompression:     true,
		MaxResponseHeaderBytes: MaxHeader,
		Protocols:              new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: window,
			MaxReceiveBufferPerStream:     window,
			MaxReadFrameSize:              16 << 10,
		},
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	client, err := t.NewClientConn(ctx, "http", "probe:0")
	if err != nil {
		return nil, w.why(ctx, err)
	}
	return &HTTP2{client, w}, nil
}

// RoundTrip sends a request and returns the answer, whose body the caller closes.
// Nothing is decompressed and no redirect is followed.
func (c *HTTP2) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.client.RoundTrip(r)
	if err != nil {
		return nil, c.conn.why(r.Context(), err)
	}
	return answer, nil
}

// Close closes the connection.
func (c *HTTP2) Close() error { return c.client.Close() }
