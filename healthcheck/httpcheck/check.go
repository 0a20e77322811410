package httpcheck

import (
	"cmp"
	"net/netip"
	"regexp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
)

// DefaultMaxBody is the MaxBody of checks that have none, in bytes.
const DefaultMaxBody = 1 << 20

// The versions of HTTP that a Check can ask with.
const (
	Version10 = "1.0"
	Version11 = "1.1"
	Version2  = "2"
)

// Check is a healthcheck.Method. Use it by value; its parts must not change while
// it is in use.
type Check struct {
	// Via is how the packets leave.
	Via healthcheck.Via
	// TLS makes it HTTPS; nil for none.
	TLS *tlsopt.Options
	// Version is Version10, Version11 or Version2; empty for 1.1. Without TLS,
	// HTTP/2 begins at once ("prior knowledge"), with TLS by ALPN. An answer in
	// any HTTP/1.x is fine for 1.0 and 1.1.
	Version string
	// Method is the request's method, empty for GET. Not CONNECT.
	Method string
	// Host is the host that is asked for, a name or an address with or without
	// a port; empty for the target. It is the TLS options' host as well.
	Host string
	// Headers are sent in addition to Host, User-Agent (unless it is here), what
	// Body needs, and "Connection: close" in 1.1.
	Headers []Header
	// Body is the body of each request, at most 1 MiB; empty for none.
	Body []byte
	// Requests must all be answered well; none means one for "/".
	Requests []Request
	// MaxBody is how long the body of an answer may be, in bytes, at most 64
	// MiB; 0 is DefaultMaxBody. A longer body fails the check.
	MaxBody int64
}

// Header is a header field of a request.
type Header struct{ Name, Value string }

// HeaderMatch is what a header field of an answer must have.
type HeaderMatch struct {
	// Name is the field's, in any case. Not Transfer-Encoding nor Trailer, which
	// say how the answer is sent.
	Name string
	// Match must match the value, one of them where the field comes several
	// times; with Negate there must be no value that it matches, so that none at
	// all is fine.
	Match  *regexp.Regexp
	Negate bool
}

// Request is one request and what its answer must be.
type Request struct {
	// Path is sent as it is, with its query; it begins with "/".
	Path string
	// Status is what the status may be; nil is 200-299.
	Status StatusRanges
	// Headers are what fields of the answer's header must have; all of them hold.
	// At most 64.
	Headers []HeaderMatch
	// Digest is what the body must have: "md5:" or "sha256:" and the digest in
	// hexadecimal digits; empty for any body. The body is that of the transfer:
	// a Content-Encoding is not undone.
	Digest string
	// Match must match somewhere in the body, or nowhere with Negate; nil for
	// any body. As with all of Go's expressions, "." does not match a newline
	// without (?s), "^" and "$" are those of the body without (?m), and there
	// are no look-arounds.
	Match  *regexp.Regexp
	Negate bool
	// MinOffset and MaxOffset are where in the body the match must begin, at the
	// earliest and at the latest, in bytes; a MaxOffset of 0 is anywhere. What is
	// before MinOffset is not looked at: "^" stands for it.
	MinOffset, MaxOffset int
}

// Equal reports whether both check in the same way.
func (c Check) Equal(d Check) bool { return c.Key() == d.Key() }

// NewChecker returns a checker of target, which needs an address that Via can
// reach and a port. It returns an error for options that contradict themselves.
func (c Check) NewChecker(target netip.AddrPort, env healthcheck.Env) (healthcheck.Checker, error) {
	if err := c.validate(target); err != nil {
		return nil, err
	}
	c.Version = cmp.Or(c.Version, Version11)
	c.Method = cmp.Or(c.Method, "GET")
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	if c.Host == "" {
		c.Host = hostOf(target, c.TLS != nil)
	}
	return newChecker(c, target, env)
}

// hostOf returns the host of a URL for a target.
func hostOf(target netip.AddrPort, secure bool) string {
	usual := uint16(80)
	if secure {
		usual = 443
	}
	target = netip.AddrPortFrom(target.Addr().Unmap(), target.Port())
	switch {
	case target.Port() != usual:
		return target.String()
	case target.Addr().Is6():
		return "[" + target.Addr().String() + "]"
	}
	return target.Addr().String()
}
