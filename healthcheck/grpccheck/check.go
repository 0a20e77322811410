package grpccheck

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
)

// maxService is the greatest length of a service's name, in bytes.
const maxService = 1024

// Check is a healthcheck.Method. Use it by value.
type Check struct {
	// Via is how the packets leave.
	Via healthcheck.Via
	// TLS is for servers that speak it; nil for none.
	TLS *tlsopt.Options
	// Service is the name of the service to ask for, such as "shop.Orders";
	// empty for the server as a whole.
	Service string
	// Authority is the host that is asked for, a name or an address with or
	// without a port; empty for the target. It is the TLS options' host as well.
	Authority string
}

// Key implements healthcheck.Method.
func (c Check) Key() string {
	key := "grpc"
	if c.Service != "" {
		key += " service=" + strconv.Quote(c.Service)
	}
	if c.Authority != "" {
		key += " authority=" + strconv.Quote(c.Authority)
	}
	if c.TLS != nil {
		key += " " + c.TLS.Key()
	}
	return key + c.Via.Key()
}

// Equal reports whether both check in the same way.
func (c Check) Equal(d Check) bool { return c.Key() == d.Key() }

// NewChecker returns a checker of target, which needs an address that Via can
// reach and a port. It returns an error for options that contradict themselves.
func (c Check) NewChecker(target netip.AddrPort, env healthcheck.Env) (healthcheck.Checker, error) {
	if err := c.Via.Validate(target.Addr()); err != nil {
		return nil, fmt.Errorf("grpc check of %v: %w", target.Addr(), err)
	}
	target = netip.AddrPortFrom(target.Addr().Unmap(), target.Port())
	if target.Port() == 0 {
		return nil, fmt.Errorf("grpc check of %v: no port", target.Addr())
	}
	if len(c.Service) > maxService || !utf8.ValidString(c.Service) {
		return nil, fmt.Errorf("service %.80q is not UTF-8 or longer than %d bytes", c.Service, maxService)
	}
	if c.Authority == "" {
		c.Authority = target.String()
	}
	name, err := tlsopt.NameOf(c.Authority)
	if err != nil {
		return nil, err
	}
	k := &checker{spec: c, target: target, env: env, question: frame(encodeRequest(c.Service))}
	if c.TLS == nil {
		return k, nil
	}
	if len(c.TLS.ALPN) > 0 && !slices.Contains(c.TLS.ALPN, "h2") {
		return nil, errors.New(`ALPN without "h2", which gRPC speaks`)
	}
	if k.tls, err = c.TLS.Config(name); err != nil {
		return nil, err
	}
	if len(k.tls.NextProtos) == 0 {
		k.tls.NextProtos = []string{"h2"}
	}
	return k, nil
}
