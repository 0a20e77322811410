package tlsopt

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options are the TLS options of a check. The zero value verifies the server's
// certificate with the host's own authorities. They are used by pointer, shared by
// as many checks as like, and not changed after their first use. Their methods are
// safe for concurrent use.
type Options struct {
	// ServerName is the host name or address that the certificate must be for;
	// empty for the host that Config is given.
	ServerName string
	// SNI is the name that the client asks for, a host name; empty for ServerName
	// or the host. An address is never sent (RFC 6066, section 3).
	SNI string
	// NoSNI asks for no name.
	NoSNI bool
	// SkipVerify accepts any certificate.
	SkipVerify bool
	// CA holds the authorities to trust instead of the host's own, in PEM.
	CA []byte
	// ClientCert and ClientKey are the client's certificate chain and key, in PEM; both or
	// none.
	ClientCert, ClientKey []byte
	// MinVersion is the lowest version to accept, such as tls.VersionTLS13; 0 is
	// TLS 1.2.
	MinVersion uint16
	// ALPN lists the application protocols to offer, the preferred one first.
	ALPN []string
	// WarnBefore is how long before a certificate expires Warning says so; 0 for
	// never.
	WarnBefore time.Duration

	parse    sync.Once
	roots    *x509.CertPool
	own      []tls.Certificate
	parseErr error

	keyOnce sync.Once
	key     string
}

// defaultMinVersion is what browsers demand since 2020.
const defaultMinVersion = tls.VersionTLS12

// Validate says what is wrong with the options. A nil *Options is fine.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	if o.NoSNI && o.SNI != "" {
		return errors.New("a name for SNI and no SNI at once")
	}
	if o.SNI != "" && (isAddress(o.SNI) || !isName(o.SNI)) {
		return fmt.Errorf("SNI %q is not a host name", o.SNI)
	}
	if o.ServerName != "" && !isAddress(o.ServerName) && !isName(o.ServerName) {
		return fmt.Errorf("server name %q is neither a host name nor an address", o.ServerName)
	}
	if o.MinVersion != 0 && (o.MinVersion < tls.VersionTLS10 || o.MinVersion > tls.VersionTLS13) {
		return fmt.Errorf("minimum TLS version %#04x is not one of 1.0, 1.1, 1.2, 1.3", o.MinVersion)
	}
	if o.WarnBefore < 0 {
		return fmt.Errorf("warning %v before expiry is negative", o.WarnBefore)
	}
	if slices.ContainsFunc(o.ALPN, func(p string) bool { return p == "" || len(p) > 255 }) {
		return fmt.Errorf("ALPN %q has a protocol that is not 1 to 255 bytes long", o.ALPN)
	}
	o.parse.Do(o.parsePEM)
	return o.parseErr
}

// isAddress reports whether s is an IP address, in brackets or not.
func isAddress(s string) bool {
	_, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return err == nil
}

// isName reports whether s can be a host name in the form that TLS sends: ASCII,
// labels of 1 to 63 bytes, 253 in all, no dot at the end.
func isName(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool { return !isLabel(r) }) {
			return false
		}
	}
	return true
}

// Equal reports whether both make the same handshakes.
func (o *Options) Equal(p *Options) bool { return o.Key() == p.Key() }
