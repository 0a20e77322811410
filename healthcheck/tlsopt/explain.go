package tlsopt

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
)

// explained is an error with a text for people, over the error that it explains.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }

func said(err error, format string, args ...any) error {
	return &explained{text: fmt.Sprintf(format, args...), err: err}
}

// Explain has words for people in the place of what crypto/tls and crypto/x509
// say, or returns err itself where it knows none better. The result wraps err,
// and nothing that the server chose makes it long or unfit to print.
func Explain(err error) error {
	var (
		done     *explained
		record   tls.RecordHeaderError
		invalid  x509.CertificateInvalidError
		hostname x509.HostnameError
		unknown  x509.UnknownAuthorityError
		verify   *tls.CertificateVerificationError
		op       *net.OpError
	)
	switch {
	case err == nil || errors.As(err, &done):
		return err
	case errors.As(err, &record):
		return said(err, "the server does not speak TLS: it answers %q", healthcheck.Printable(string(record.RecordHeader[:])))
	case errors.As(err, &invalid):
		return said(err, "the certificate %s", defect(invalid, time.Now()))
	case errors.As(err, &hostname):
		return said(err, "the certificate is for %s, not for %s", names(hostname.Certificate), healthcheck.Printable(hostname.Host))
	case errors.As(err, &unknown):
		return said(err, "the certificate %s", issuer(unknown.Cert))
	case errors.As(err, &verify):
		return said(err, "the certificate is not valid: %s", healthcheck.Printable(verify.Err.Error()))
	case errors.As(err, &op) && op.Op == "remote error" && op.Err != nil:
		return said(err, "the server refuses: %s", alert(op.Err.Error()))
	}
	var version uint16
	if _, e := fmt.Sscanf(err.Error(), "tls: server selected unsupported protocol version %x", &version); e == nil {
		return said(err, "the server wants %s, which is too old", tls.VersionName(version))
	}
	return err
}

// alert returns what an alert of the server means for a person; the texts are
// those of crypto/tls for the alerts of RFC 8446, section 6.2.
func alert(text string) string {
	text = strings.TrimPrefix(text, "tls: ")
	hint := map[string]string{
		"protocol version not supported": "no TLS version in common",
		"inappropriate fallback":         "no TLS version in common",
		"handshake failure":              "no cipher in common, or it demands a client certificate",
		"insufficient security level":    "it demands better ciphers",
		"unrecognized name":              "it does not know the name in SNI",
		"no application protocol":        "no ALPN protocol in common",
		"certificate required":           "it demands a client certificate",
		"bad certificate":                "it demands a client certificate, or another one",
		"unknown certificate":            "it demands a client certificate, or another one",
		"unsupported certificate":        "it cannot use the client certificate",
		"unknown certificate authority":  "it does not trust the issuer of the client certificate",
		"expired certificate":            "the client certificate has expired",
		"revoked certificate":            "the client certificate is revoked",
		"access denied":                  "the client certificate gives no access",
		"internal error":                 "it has a fault of its own",
	}[text]
	if hint == "" {
		return healthcheck.Printable(text)
	}
	return fmt.Sprintf("%s (%s)", hint, text)
}

// defect says what is wrong with a certificate whose issuer is known.
func defect(e x509.CertificateInvalidError, now time.Time) string {
	switch c := e.Cert; {
	case e.Reason == x509.Expired && c != nil && now.Before(c.NotBefore):
		return fmt.Sprintf("is not valid before %s", stamp(c.NotBefore))
	case e.Reason == x509.Expired && c != nil:
		return fmt.Sprintf("expired on %s", stamp(c.NotAfter))
	case e.Reason == x509.IncompatibleUsage:
		return "is not for servers (extended key usage)"
	case e.Reason == x509.NotAuthorizedToSign:
		return "was issued by one that may not issue any"
	}
	return "is not valid: " + healthcheck.Printable(e.Error())
}

// issuer says why no authority vouches for a certificate.
func issuer(c *x509.Certificate) string {
	switch {
	case c == nil:
		return "is issued by an authority that is not trusted"
	case string(c.RawIssuer) == string(c.RawSubject):
		return fmt.Sprintf("is not trusted: it is signed by itself (%s)", healthcheck.Printable(c.Subject.String()))
	}
	return fmt.Sprintf("is not trusted: its issuer is unknown (%s)", healthcheck.Printable(c.Issuer.String()))
}

// names lists who a certificate is for.
func names(c *x509.Certificate) string {
	const most = 3
	if c == nil {
		return "no name at all"
	}
	all := make([]string, 0, most+1)
	add := func(name string) {
		if len(all) < most {
			all = append(all, healthcheck.Printable(name))
		}
	}
	for _, n := range c.DNSNames {
		add(n)
	}
	for _, ip := range c.IPAddresses {
		add(ip.String())
	}
	if n := len(c.DNSNames) + len(c.IPAddresses); n > most {
		all = append(all, fmt.Sprintf("and %d more", n-most))
	}
	if len(all) == 0 {
		return "no name at all"
	}
	return strings.Join(all, ", ")
}
