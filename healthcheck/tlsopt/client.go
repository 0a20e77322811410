package tlsopt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/lbd-project/lbd/healthcheck/hostile"
)

// Client makes a handshake with the server at the other end of conn, within ctx.
// Its errors say what is wrong with the server, as those of Explain. The caller
// closes the result, or conn where there is an error.
//
// A server of TLS 1.3 asks for the client's certificate and does not wait for it:
// that it does not like what it got is the error of the first read.
func Client(ctx context.Context, conn net.Conn, config *tls.Config) (*tls.Conn, error) {
	c := tls.Client(conn, config)
	err := c.HandshakeContext(ctx)
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		err = said(err, "the server closed the connection before it was done")
	}
	return nil, fmt.Errorf("TLS handshake: %w", Explain(hostile.InTime(err)))
}
