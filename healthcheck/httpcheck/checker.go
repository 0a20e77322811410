package httpcheck

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/stream"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
)

// exchange is a request in the form that is sent, with what its answer must be.
type exchange struct {
	Request
	digest *digest
	// text is the request in HTTP/1.x.
	text []byte
}

// checker implements healthcheck.Checker. Its spec has every default filled in.
type checker struct {
	spec      Check
	target    netip.AddrPort
	env       healthcheck.Env
	tls       *tls.Config
	exchanges []exchange
	// first is the exchange to begin with: the one that failed last time.
	first int
}

func newChecker(c Check, target netip.AddrPort, env healthcheck.Env) (*checker, error) {
	k := &checker{spec: c, target: target, env: env}
	if c.TLS != nil {
		name, err := tlsopt.NameOf(c.Host)
		if err != nil {
			return nil, err
		}
		if k.tls, err = c.TLS.Config(name); err != nil {
			return nil, err
		}
		if c.Version == Version2 && len(k.tls.NextProtos) == 0 {
			k.tls.NextProtos = []string{"h2"}
		}
	}
	for _, r := range c.requests() {
		d, err := parseDigest(r.Digest)
		if err != nil {
			return nil, err
		}
		x := exchange{Request: r, digest: d}
		if c.Version != Version2 {
			x.text = c.text(r.Path)
		}
		k.exchanges = append(k.exchanges, x)
	}
	return k, nil
}

// Check implements healthcheck.Checker. After a failure it asks first for what
// failed: a server that still fails is found out by one request, and one that has
// recovered has passed all of them when it is called healthy.
func (k *checker) Check(ctx context.Context) (healthcheck.Result, error) {
	begun := time.Now()
	var r healthcheck.Result
	status := make([]int, len(k.exchanges))
	for _, i := range k.order() {
		var err error
		status[i], err = k.ask(ctx, &k.exchanges[i], &r)
		if err != nil {
			k.first = i
			r.Latency = time.Since(begun)
			return r, err
		}
	}
	k.first = 0
	r.Latency = time.Since(begun)
	r.Detail = detail(status)
	return r, nil
}

// order returns the indices of the exchanges, that of first first.
func (k *checker) order() []int {
	order := make([]int, 0, len(k.exchanges))
	order = append(order, k.first)
	for i := range k.exchanges {
		if i != k.first {
			order = append(order, i)
		}
	}
	return order
}

// detail prints "status 200", or "status 200, 204" of two requests.
func detail(status []int) string {
	b := []byte("status ")
	for i, s := range status {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, int64(s), 10)
	}
	return string(b)
}

// ask makes one exchange on a new connection and returns the status.
func (k *checker) ask(ctx context.Context, x *exchange, r *healthcheck.Result) (int, error) {
	c, err := stream.DialLimit(ctx, k.spec.Via, k.env, k.target, wireLimit(k.spec.MaxBody))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if k.tls != nil {
		state, err := c.StartTLS(ctx, k.tls)
		if err != nil {
			return 0, err
		}
		r.Warning = k.spec.TLS.Warning(state, time.Now())
	}
	exchange := k.exchange1
	if k.spec.Version == Version2 {
		exchange = k.exchange2
	}
	status, err := exchange(ctx, c, x)
	if err != nil {
		return status, fmt.Errorf("%s %s: %w", k.spec.Method, shorten(x.Path), err)
	}
	return status, nil
}

// wireLimit returns how many bytes a server may send for a body of this size:
// enough for chunks and records of a few bytes, not for a flood of what is in
// between.
func wireLimit(body int64) int64 { return 1<<20 + 4*body }

// shorten returns the begin of a path for an error.
func shorten(path string) string {
	const most = 80
	if path, _, _ = strings.Cut(path, "?"); len(path) > most {
		return path[:most] + "…"
	}
	return path
}
