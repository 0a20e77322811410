package httpconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/hostile"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
)

var errTooMuch = fmt.Errorf("%w in all", hostile.ErrTooMuch)

// badAnswer is the error of an answer that cannot be understood. What parsers say
// quotes the answer, which is as long as the server likes.
type badAnswer struct{ err error }

func (e *badAnswer) Error() string { return "bad answer: " + healthcheck.Printable(e.err.Error()) }
func (e *badAnswer) Unwrap() error { return e.err }

// Explain has words for people in the place of what connections and parsers say
// of a server that does not answer well. The result is short, fit to print, and
// has no address or port of this host, which would make each error another.
func Explain(err error) error {
	var op *net.OpError
	switch known := tlsopt.Explain(err); {
	case errors.Is(err, context.DeadlineExceeded):
		return hostile.InTime(context.DeadlineExceeded)
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, ErrNoHTTP2), errors.Is(err, errNotHTTP2):
		return err
	case errors.Is(err, hostile.ErrTooMuch):
		return errTooMuch
	case known != err:
		return fmt.Errorf("TLS: %w", known)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the server closed the connection before the end of its answer: %w", io.ErrUnexpectedEOF)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("the server reset the connection: %w", syscall.ECONNRESET)
	case errors.As(err, &op) && op.Err != nil:
		return op.Err
	}
	return &badAnswer{err}
}
