package httpconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/lbd-project/lbd/healthcheck/hostile"
)

func TestExplain(t *testing.T) {
	op := func(err error) error {
		return &net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{Port: 12345}, Err: err}
	}
	for _, tt := range []struct {
		err  error
		is   error // what stays in the chain
		want string
	}{
		{fmt.Errorf("http2: %w", context.DeadlineExceeded), context.DeadlineExceeded, "no answer in time: context deadline exceeded"},
		{fmt.Errorf("http2: %w", context.Canceled), context.Canceled, "context canceled"},
		{fmt.Errorf("read: %w: over 7 bytes", hostile.ErrTooMuch), hostile.ErrTooMuch, "the target sends too much in all"},
		{io.EOF, io.ErrUnexpectedEOF, "the server closed the connection before the end of its answer: unexpected EOF"},
		{op(os.NewSyscallError("read", syscall.ECONNRESET)), syscall.ECONNRESET, "the server reset the connection: connection reset by peer"},
		{op(os.NewSyscallError("write", syscall.EPIPE)), syscall.ECONNRESET, "the server reset the connection: connection reset by peer"},
		{op(os.NewSyscallError("read", syscall.ETIMEDOUT)), syscall.ETIMEDOUT, "read: connection timed out"},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, nil, "TLS: the server refuses: it demands a client certificate (certificate required)"},
		{tls.RecordHeaderError{RecordHeader: [5]byte{'H', 'T', 'T', 'P', '/'}}, nil, `TLS: the server does not speak TLS: it answers "HTTP/"`},
		{ErrNoHTTP2, ErrNoHTTP2, "the server does not agree to HTTP/2 (ALPN)"},
		{errNotHTTP2, errNotHTTP2, "the server answers in HTTP/1.x"},
		{errors.New("malformed \x00\x1b" + strings.Repeat("x", 1000)), nil, "bad answer: malformed ??" + strings.Repeat("x", 185) + "…"},
	} {
		got := Explain(tt.err)
		if got.Error() != tt.want || tt.is != nil && !errors.Is(got, tt.is) {
			t.Errorf("%v: want %q, got %q", tt.err, tt.want, got)
		}
	}
}
