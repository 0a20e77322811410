package tlsopt

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/netip"
	"slices"
	"strings"
)

// Config returns the configuration for a server that is called host, a name or an
// address, where the options have no other name. It returns the errors of
// Validate.
func (o *Options) Config(host string) (*tls.Config, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	name := cmp.Or(o.ServerName, host)
	if addr, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		name = addr.WithZone("").String()
	}
	sni := cmp.Or(o.SNI, name)
	if o.NoSNI {
		sni = ""
	}
	if name == "" && !o.SkipVerify {
		return nil, errors.New("no name to verify the certificate for")
	}
	c := &tls.Config{
		ServerName:   sni,
		RootCAs:      o.roots,
		Certificates: o.own,
		MinVersion:   cmp.Or(o.MinVersion, defaultMinVersion),
		NextProtos:   slices.Clone(o.ALPN),
	}
	switch {
	case o.SkipVerify:
		c.InsecureSkipVerify = true
	case sni != name:
		// crypto/tls verifies the name that it sends, and no other.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(state tls.ConnectionState) error {
			if _, err := o.verify(state, name); err != nil {
				return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
			}
			return nil
		}
	}
	return c, nil
}

// verify returns the chains from the server's certificate to an authority. With
// an empty name it does not ask who the certificate is for.
func (o *Options) verify(state tls.ConnectionState, name string) ([][]*x509.Certificate, error) {
	if len(state.PeerCertificates) == 0 {
		return nil, errors.New("the server has no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	return state.PeerCertificates[0].Verify(x509.VerifyOptions{
		DNSName: name, Roots: o.roots, Intermediates: intermediates,
	})
}
