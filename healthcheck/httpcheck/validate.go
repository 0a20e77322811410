package httpcheck

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/lbd-project/lbd/healthcheck/tlsopt"
)

// What a check may have at most.
const (
	maxRequestBody = 1 << 20
	maxMaxBody     = 64 << 20
	maxRequests    = 64
	maxHeaderField = 16 << 10
	maxExpected    = 64
)

// framing are the fields of a request that say where it ends or what is done with
// the connection: they are not for the user to set.
var framing = []string{
	"Connection", "Content-Length", "Expect", "Host", "Http2-Settings", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
}

// validate says what is wrong with the options or with the target.
func (c Check) validate(target netip.AddrPort) error {
	if err := c.Via.Validate(target.Addr()); err != nil {
		return fmt.Errorf("http check of %v: %w", target.Addr(), err)
	}
	if target.Port() == 0 {
		return fmt.Errorf("http check of %v: no port", target.Addr())
	}
	if !slices.Contains([]string{"", Version10, Version11, Version2}, c.Version) {
		return fmt.Errorf("HTTP version %q is not one of 1.0, 1.1, 2", c.Version)
	}
	if c.Method != "" && !IsToken(c.Method) || c.Method == "CONNECT" {
		return fmt.Errorf("method %q cannot be used", c.Method)
	}
	if c.Host != "" {
		if _, err := tlsopt.NameOf(c.Host); err != nil {
			return err
		}
	}
	if len(c.Body) > maxRequestBody {
		return fmt.Errorf("body of %d bytes, at most %d can be sent", len(c.Body), maxRequestBody)
	}
	if c.MaxBody < 0 || c.MaxBody > maxMaxBody {
		return fmt.Errorf("limit of %d bytes for a body is not within 0 to %d", c.MaxBody, maxMaxBody)
	}
	if c.TLS != nil {
		if err := c.validateTLS(); err != nil {
			return err
		}
	}
	for _, h := range c.Headers {
		if err := c.validateHeader(h); err != nil {
			return err
		}
	}
	if len(c.Requests) > maxRequests {
		return fmt.Errorf("%d requests, at most %d can be made", len(c.Requests), maxRequests)
	}
	for _, r := range c.requests() {
		if err := r.validate(c.Method, c.Version); err != nil {
			return fmt.Errorf("request of %q: %w", r.Path, err)
		}
	}
	return nil
}

func (c Check) validateTLS() error {
	if err := c.TLS.Validate(); err != nil {
		return err
	}
	h2 := slices.Contains(c.TLS.ALPN, "h2")
	if len(c.TLS.ALPN) > 0 && h2 != (c.Version == Version2) {
		return fmt.Errorf("ALPN %q is not for HTTP version %q", c.TLS.ALPN, c.Version)
	}
	return nil
}

func (c Check) validateHeader(h Header) error {
	switch {
	case !IsToken(h.Name):
		return fmt.Errorf("header name %q is not a token", h.Name)
	case len(h.Name)+len(h.Value) > maxHeaderField:
		return fmt.Errorf("header %s is longer than %d bytes", h.Name, maxHeaderField)
	case strings.ContainsFunc(h.Value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return fmt.Errorf("header %s has a value with control characters", h.Name)
	case c.Version == Version10 && strings.EqualFold(h.Name, "Connection"):
		// HTTP/1.0 knows no such field; some servers of it want to see one.
		return nil
	case slices.ContainsFunc(framing, func(name string) bool { return strings.EqualFold(name, h.Name) }):
		return fmt.Errorf("header %s cannot be set", h.Name)
	}
	return nil
}

func (r Request) validate(method, version string) error {
	if !strings.HasPrefix(r.Path, "/") || strings.ContainsFunc(r.Path, func(c rune) bool { return c <= ' ' || c > '~' || c == '#' }) {
		return errors.New(`a path begins with "/" and has only printable ASCII and no "#"`)
	}
	if version == Version2 {
		// net/http takes a URL and writes the path itself.
		u, err := url.ParseRequestURI(r.Path)
		if err != nil || u.Host != "" || u.RequestURI() != r.Path {
			return errors.New("HTTP/2 takes only canonical paths")
		}
	}
	if err := r.Status.validate(); err != nil {
		return err
	}
	if len(r.Headers) > maxExpected {
		return fmt.Errorf("%d expected headers, at most %d can be", len(r.Headers), maxExpected)
	}
	for _, m := range r.Headers {
		if err := m.validate(); err != nil {
			return err
		}
	}
	if _, err := parseDigest(r.Digest); err != nil {
		return err
	}
	if r.Negate && r.Match == nil {
		return errors.New("a negation without an expression")
	}
	if r.MinOffset < 0 || r.MaxOffset < 0 || r.MaxOffset > 0 && r.MaxOffset < r.MinOffset {
		return fmt.Errorf("no match begins at offset %d to %d", r.MinOffset, r.MaxOffset)
	}
	if (r.MinOffset > 0 || r.MaxOffset > 0) && r.Match == nil {
		return errors.New("an offset without an expression")
	}
	if method == "HEAD" && (r.Digest != "" || r.Match != nil) {
		return errors.New("the answer to HEAD has no body to look at")
	}
	return nil
}

func (m HeaderMatch) validate() error {
	switch {
	case !IsToken(m.Name) || len(m.Name) > maxHeaderField:
		return fmt.Errorf("header name %.80q is not a token", m.Name)
	case strings.EqualFold(m.Name, "Transfer-Encoding"), strings.EqualFold(m.Name, "Trailer"):
		return fmt.Errorf("header %s cannot be expected", m.Name)
	case m.Match == nil:
		return fmt.Errorf("header %s without an expression", m.Name)
	}
	return nil
}

// IsToken says whether a text is a token of RFC 9110, section 5.6.2: a method, or the
// name of a header.
func IsToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}
