package httpcheck

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/lbd-project/lbd/healthcheck/httpconn"
	"github.com/lbd-project/lbd/healthcheck/stream"
)

// maxHeader is how long the header of an answer may be, together with all
// interim answers before it, in bytes.
const maxHeader = httpconn.MaxHeader

// userAgent is what servers log.
const userAgent = "lbd"

var (
	errLongHeader = fmt.Errorf("the header of the answer is longer than %d bytes", maxHeader)
	errSpeaksTLS  = errors.New("the server speaks TLS, and the check does not")
	errHTTP2      = errors.New("the server answers in HTTP/2")
	errNoAnswer   = errors.New("the server closed the connection without an answer")
)

// text returns a request of HTTP/1.x.
func (c Check) text(path string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/%s\r\nHost: %s\r\n", c.Method, path, c.Version, c.Host)
	if c.Version == Version11 {
		b.WriteString("Connection: close\r\n")
	}
	if !slices.ContainsFunc(c.Headers, func(h Header) bool { return strings.EqualFold(h.Name, "User-Agent") }) {
		b.WriteString("User-Agent: " + userAgent + "\r\n")
	}
	for _, h := range c.Headers {
		fmt.Fprintf(&b, "%s: %s\r\n", h.Name, strings.TrimSpace(h.Value))
	}
	if len(c.Body) > 0 || slices.Contains([]string{"POST", "PUT", "PATCH"}, c.Method) {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(c.Body))
	}
	b.WriteString("\r\n")
	b.Write(c.Body)
	return b.Bytes()
}

// exchange1 asks by HTTP/1.x.
func (k *checker) exchange1(ctx context.Context, c *stream.Conn, x *exchange) (int, error) {
	_, writeErr := c.Write(x.text)
	if err := ctx.Err(); err != nil {
		return 0, explain(err)
	}
	// A server may answer, and close, before it has read a long request.
	answer, err := readAnswer(c, k.spec.Method)
	if err != nil {
		if writeErr != nil && ctx.Err() == nil {
			err = writeErr
		}
		return 0, explain(err)
	}
	err = k.judge(x, answer)
	if answer.Close {
		// Also after a bad answer: servers that are down for long are asked often.
		c.Hangup(ctx)
	}
	return answer.StatusCode, err
}

// readAnswer returns the final answer, whose body is still to be read.
func readAnswer(conn io.Reader, method string) (*http.Response, error) {
	header := &limited{r: conn, left: maxHeader}
	r := bufio.NewReader(header)
	if b, err := r.Peek(1); err != nil {
		if errors.Is(err, io.EOF) {
			err = errNoAnswer
		}
		return nil, err
	} else if b[0] == 0x15 || b[0] == 0x16 {
		// The content types alert and handshake (RFC 8446, section 5.1).
		return nil, errSpeaksTLS
	} else if b[0] == 0 {
		// The length of a frame, whose type is SETTINGS (RFC 9113, section 6.5).
		if b, err := r.Peek(4); err == nil && b[3] == 4 {
			return nil, errHTTP2
		}
	}
	for {
		answer, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil && header.left == 0 {
			// The parser fell over the cut line.
			return nil, errLongHeader
		}
		if err != nil && header.err != nil && !errors.Is(header.err, io.EOF) {
			// The parser took half a line for a whole one, and forgot why.
			return nil, header.err
		}
		if err != nil {
			return nil, err
		}
		if answer.ProtoMajor != 1 {
			return nil, fmt.Errorf("the server answers in %s", answer.Proto)
		}
		if answer.StatusCode >= 200 || answer.StatusCode < 100 || answer.StatusCode == http.StatusSwitchingProtocols {
			header.left = -1
			return answer, nil
		}
	}
}

// limited reads until left bytes are used up; any number if that is negative. It
// keeps the last error.
type limited struct {
	r    io.Reader
	left int64
	err  error
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.left < 0 {
		return l.r.Read(p)
	}
	if l.left == 0 && len(p) > 0 {
		return 0, errLongHeader
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	l.err = err
	return n, err
}

// explain is httpconn.Explain, for the errors of this package too.
func explain(err error) error {
	for _, own := range []error{errLongHeader, errSpeaksTLS, errHTTP2, errNoAnswer} {
		if errors.Is(err, own) {
			return own
		}
	}
	return httpconn.Explain(err)
}
