package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// TB is what is needed of a testing.TB.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Cert is a certificate with its key, in every form.
type Cert struct {
	X509 *x509.Certificate
	// TLS is the chain without the root, as a server sends it.
	TLS tls.Certificate
	// CertPEM is the chain as in TLS, KeyPEM the key.
	CertPEM, KeyPEM []byte
}

// Authority issues certificates.
type Authority struct{ Cert }

// Spec says what a certificate is for. The zero value is good for a day and for
// no name.
type Spec struct {
	CommonName string
	// Names are host names and addresses.
	Names []string
	// NotBefore and NotAfter default to an hour ago and a day from now.
	NotBefore, NotAfter time.Time
	// Usage defaults to servers and clients.
	Usage []x509.ExtKeyUsage
	// Padding makes the certificate larger by so many bytes.
	Padding int
}

// New makes a root authority, good for ten years.
func New(t TB) *Authority {
	t.Helper()
	return &Authority{issue(t, Spec{CommonName: "test root", NotAfter: time.Now().AddDate(10, 0, 0)}, nil, true)}
}

// PEM returns the authority's own certificate.
func (a *Authority) PEM() []byte { return encode("CERTIFICATE", a.X509.Raw) }

// Pool returns a pool with the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.X509)
	return pool
}

// Issue makes a certificate.
func (a *Authority) Issue(t TB, s Spec) Cert {
	t.Helper()
	return issue(t, s, a, false)
}

// Intermediate makes an authority below a.
func (a *Authority) Intermediate(t TB, s Spec) *Authority {
	t.Helper()
	return &Authority{issue(t, s, a, true)}
}

// SelfSigned makes a certificate that nobody vouches for.
func SelfSigned(t TB, s Spec) Cert {
	t.Helper()
	return issue(t, s, nil, false)
}

func issue(t TB, s Spec, by *Authority, authority bool) Cert {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("%v", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		t.Fatalf("%v", err)
	}
	c := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: s.CommonName},
		NotBefore:             s.NotBefore,
		NotAfter:              s.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  authority,
		ExtKeyUsage:           s.Usage,
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-time.Hour)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(24 * time.Hour)
	}
	switch {
	case authority:
		c.KeyUsage = x509.KeyUsageCertSign
	case s.Usage == nil:
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	for _, n := range s.Names {
		if ip := net.ParseIP(n); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, n)
		}
	}
	if s.Padding > 0 {
		// An arc for examples, 2.999 (ITU-T X.660).
		c.ExtraExtensions = []pkix.Extension{{Id: []int{2, 999}, Value: make([]byte, s.Padding)}}
	}
	parent, signer, above := c, any(key), [][]byte(nil)
	if by != nil {
		parent, signer, above = by.X509, by.TLS.PrivateKey, by.TLS.Certificate
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return pack(t, der, above, key, by == nil && authority)
}

// pack puts the forms together. A root is not part of the chain that it begins.
func pack(t TB, der []byte, above [][]byte, key *ecdsa.PrivateKey, root bool) Cert {
	t.Helper()
	var out Cert
	var err error
	if out.X509, err = x509.ParseCertificate(der); err != nil {
		t.Fatalf("%v", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatalf("%v", err)
	}
	out.KeyPEM = encode("PRIVATE KEY", keyDER)
	out.TLS.PrivateKey = key
	if root {
		return out
	}
	out.TLS.Certificate = append([][]byte{der}, above...)
	for _, c := range out.TLS.Certificate {
		out.CertPEM = append(out.CertPEM, encode("CERTIFICATE", c)...)
	}
	return out
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
