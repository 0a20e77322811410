package tlsopt

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// parsePEM reads the certificates once for all checks that share the options: a
// file with the authorities of the world takes milliseconds.
func (o *Options) parsePEM() {
	if len(o.CA) > 0 {
		if o.roots, o.parseErr = authorities(o.CA); o.parseErr != nil {
			return
		}
	}
	if len(o.ClientCert) == 0 && len(o.ClientKey) == 0 {
		return
	}
	if len(o.ClientCert) == 0 || len(o.ClientKey) == 0 {
		o.parseErr = errors.New("a client certificate needs both the certificate and its key")
		return
	}
	pair, err := tls.X509KeyPair(o.ClientCert, o.ClientKey)
	if err != nil {
		o.parseErr = fmt.Errorf("client certificate: %w", err)
		return
	}
	o.own = []tls.Certificate{pair}
}

// authorities returns all certificates of a PEM text. One that cannot be read is
// an error: left out, it would be missed only when a check fails.
func authorities(text []byte) (*x509.CertPool, error) {
	pool, n := x509.NewCertPool(), 0
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		n++
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of the CA: %w", n, err)
		}
		pool.AddCert(cert)
	}
	if n == 0 {
		return nil, errors.New("no certificate in the CA (it must be PEM)")
	}
	return pool, nil
}
