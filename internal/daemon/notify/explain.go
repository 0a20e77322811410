package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/lbd-project/lbd/healthcheck/tlsopt"
)

// explained is an error in words that are safe to show, over its cause.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }

// explain says why there is no answer. The errors of net/http have the URL in
// them, and what the server sent, which may be the request once more: both may be
// secrets. So only errors that are known to have neither keep their words.
func explain(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	var dns *net.DNSError
	var op *net.OpError
	var done *explained
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return &explained{"no answer within the timeout", err}
	case errors.Is(err, context.Canceled):
		return &explained{"interrupted", err}
	case errors.As(err, &done):
		return done
	case isTLS(err):
		return tlsopt.Explain(err)
	case errors.As(err, &dns):
		return &explained{dns.Error(), err}
	case errors.As(err, &op) && op.Op == "dial":
		return &explained{op.Error(), err}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		strings.HasSuffix(err.Error(), closedIdle):
		return &explained{"the server hangs up", err}
	case errors.As(err, &op):
		return &explained{op.Error(), err}
	}
	return &explained{"what the server answers is not HTTP/1.1, or too long", err}
}

// closedIdle ends net/http's error, which has no name, where the server closes
// before it has the request.
const closedIdle = "http: server closed idle connection"

// isTLS says whether an error is what TLS 1.3 says of a client certificate: only
// the first read hears of it.
func isTLS(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	if ok && op.Op == "remote error" {
		return true
	}
	_, ok = errors.AsType[tls.AlertError](err)
	return ok
}
