package tlsopt

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
)

// Warning says that the server's certificate, or one that it depends on, expires
// within WarnBefore; empty if not. The text changes once a day.
func (o *Options) Warning(state tls.ConnectionState, now time.Time) string {
	if o == nil || o.WarnBefore <= 0 || len(state.PeerCertificates) == 0 {
		return ""
	}
	soonest := o.soonest(state)
	left := soonest.NotAfter.Sub(now)
	if left > o.WarnBefore {
		return ""
	}
	whose := "the certificate"
	if !soonest.Equal(state.PeerCertificates[0]) {
		whose = fmt.Sprintf("the issuing certificate of %s", healthcheck.Printable(soonest.Subject.CommonName))
	}
	when := "expires within a day"
	switch days := int(left / (24 * time.Hour)); {
	case left <= 0:
		when = "has expired"
	case days == 1:
		when = "expires in 1 day"
	case days > 1:
		when = fmt.Sprintf("expires in %d days", days)
	}
	return fmt.Sprintf("%s %s: %s", whose, when, stamp(soonest.NotAfter))
}

// soonest returns the certificate that ends the trust in the server first. Of
// several chains, the one that holds longest counts. Without verification only the
// server's own certificate is asked: what else it sends may be of no use.
func (o *Options) soonest(state tls.ConnectionState) *x509.Certificate {
	chains := state.VerifiedChains
	if chains == nil && !o.SkipVerify {
		// Verified by Config's own callback, which cannot leave them here. That
		// it fails now can only be the clock.
		chains, _ = o.verify(state, "")
	}
	var soonest *x509.Certificate
	for _, chain := range chains {
		first := chain[0]
		for _, c := range chain[1:] {
			if c.NotAfter.Before(first.NotAfter) {
				first = c
			}
		}
		if soonest == nil || first.NotAfter.After(soonest.NotAfter) {
			soonest = first
		}
	}
	if soonest == nil {
		return state.PeerCertificates[0]
	}
	return soonest
}

// stamp prints a time as certificates have it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
