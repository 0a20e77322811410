package smtpcheck

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
)

// defaultName is Check.Name where it is empty.
const defaultName = "localhost"

// Check is healthy when the server greets with 220, accepts EHLO, or HELO where
// it does not know EHLO, with 250, starts TLS where asked for, and says 221 to
// QUIT. A server that answers otherwise hears QUIT as well. It implements
// healthcheck.Method.
type Check struct {
	Via healthcheck.Via
	// TLS begins the connection with TLS ("smtps"); nil is in the clear. Where it
	// has no server name, the certificate has to be for the target's address.
	TLS *tlsopt.Options
	// StartTLS begins in the clear and goes over to TLS by STARTTLS (RFC 3207),
	// with the options of TLS; a server that does not offer it fails.
	StartTLS bool
	// Name is how the probe introduces itself, a host name or an address in
	// brackets; empty for "localhost".
	Name string
}

// Key implements healthcheck.Method.
func (c Check) Key() string {
	var b strings.Builder
	b.WriteString("smtp")
	b.WriteString(c.Via.Key())
	if c.StartTLS {
		b.WriteString(" starttls")
	}
	if c.TLS != nil {
		b.WriteString(" " + c.TLS.Key())
	}
	b.WriteString(" name=" + strconv.Quote(cmp.Or(c.Name, defaultName)))
	return b.String()
}

// NewChecker implements healthcheck.Method. It returns an error for a target that
// Via cannot reach, and for options that are wrong.
func (c Check) NewChecker(target netip.AddrPort, env healthcheck.Env) (healthcheck.Checker, error) {
	k := &checker{check: c, target: target, env: env, name: cmp.Or(c.Name, defaultName)}
	var err error
	if k.config, err = c.validate(target); err != nil {
		return nil, fmt.Errorf("smtp check of %v: %w", target, err)
	}
	return k, nil
}

// validate returns the configuration of TLS, nil for none.
func (c Check) validate(target netip.AddrPort) (*tls.Config, error) {
	if err := c.Via.Validate(target.Addr()); err != nil {
		return nil, err
	}
	switch {
	case target.Port() == 0:
		return nil, errors.New("no port")
	case c.StartTLS && c.TLS == nil:
		return nil, errors.New("STARTTLS without options of TLS")
	case len(c.Name) > 255 || strings.ContainsFunc(c.Name, func(r rune) bool { return r <= ' ' || r > '~' }):
		// A line break would be a command of its own.
		return nil, fmt.Errorf("name %q is not a host name or an address in brackets", c.Name)
	case c.TLS == nil:
		return nil, nil
	}
	return c.TLS.Config(target.Addr().Unmap().String())
}

// checker is a Check of one target.
type checker struct {
	check  Check
	target netip.AddrPort
	env    healthcheck.Env
	config *tls.Config
	name   string
}
