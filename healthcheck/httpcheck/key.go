package httpcheck

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
)

// Key implements healthcheck.Method. The values of headers and the body may be
// secrets: the key has a SHA-256 of them.
func (c Check) Key() string {
	var b strings.Builder
	b.WriteString("http/" + cmp.Or(c.Version, Version11) + " method=" + strconv.Quote(cmp.Or(c.Method, "GET")))
	if c.Host != "" {
		b.WriteString(" host=" + strconv.Quote(c.Host))
	}
	if len(c.Headers) > 0 {
		h := sha256.New()
		for _, f := range c.Headers {
			fmt.Fprintf(h, "%q:%q\n", f.Name, f.Value)
		}
		fmt.Fprintf(&b, " headers=%x", h.Sum(nil))
	}
	if len(c.Body) > 0 {
		fmt.Fprintf(&b, " body=%x", sha256.Sum256(c.Body))
	}
	if c.MaxBody != 0 && c.MaxBody != DefaultMaxBody {
		fmt.Fprintf(&b, " max-body=%d", c.MaxBody)
	}
	for _, r := range c.requests() {
		r.key(&b)
	}
	if c.TLS != nil {
		b.WriteString(" " + c.TLS.Key())
	}
	b.WriteString(c.Via.Key())
	return b.String()
}

func (r Request) key(b *strings.Builder) {
	b.WriteString(" path=" + strconv.Quote(r.Path) + " status=" + r.Status.String())
	for _, m := range r.Headers {
		name := " header="
		if m.Negate {
			name = " no-header="
		}
		b.WriteString(name + strconv.Quote(m.Name) + ":" + strconv.Quote(m.Match.String()))
	}
	if r.Digest != "" {
		b.WriteString(" digest=" + strconv.Quote(strings.ToLower(r.Digest)))
	}
	if r.Match != nil {
		name := " match="
		if r.Negate {
			name = " no-match="
		}
		b.WriteString(name + strconv.Quote(r.Match.String()))
		if r.MinOffset > 0 || r.MaxOffset > 0 {
			fmt.Fprintf(b, " offset=%d-%d", r.MinOffset, r.MaxOffset)
		}
	}
}

// requests returns what is to be asked.
func (c Check) requests() []Request {
	if len(c.Requests) == 0 {
		return []Request{{Path: "/"}}
	}
	return c.Requests
}
