package tlsopt

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/certtest"
	"github.com/lbd-project/lbd/internal/checktest"
)

// FuzzCertificate has a server show any certificate that can be read. What is
// said of it is fit to be shown.
func FuzzCertificate(f *testing.F) {
	now := time.Now()
	for _, s := range []certtest.Spec{
		{CommonName: "a\x1b[2J\nb", Names: []string{"a.example", "b.example", "192.0.2.1", "::1"}},
		{CommonName: "old", NotBefore: now.AddDate(-2, 0, 0), NotAfter: now.AddDate(-1, 0, 0)},
		{CommonName: "early", NotBefore: now.AddDate(1, 0, 0), NotAfter: now.AddDate(2, 0, 0)},
	} {
		f.Add(certtest.SelfSigned(f, s).X509.Raw)
		f.Add(certtest.New(f).Issue(f, s).X509.Raw)
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return
		}
		for _, err := range []error{
			x509.UnknownAuthorityError{Cert: c},
			x509.HostnameError{Certificate: c, Host: "a.example"},
			x509.CertificateInvalidError{Cert: c, Reason: x509.Expired, Detail: string(der)},
			x509.CertificateInvalidError{Cert: c, Reason: x509.NameConstraintsWithoutSANs},
			x509.CertificateInvalidError{Cert: c, Reason: x509.CANotAuthorizedForThisName, Detail: string(der)},
			&tls.CertificateVerificationError{UnverifiedCertificates: []*x509.Certificate{c}, Err: x509.ConstraintViolationError{}},
		} {
			checktest.Shown(t, Explain(err).Error())
		}
		o := &Options{WarnBefore: 1 << 60}
		_, err = o.verify(tls.ConnectionState{PeerCertificates: []*x509.Certificate{c, c}}, "a.example")
		if err != nil {
			checktest.Shown(t, Explain(err).Error())
		}
		o.SkipVerify = true
		checktest.Shown(t, o.Warning(tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}, time.Now()))
		checktest.Shown(t, o.Warning(tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c, c}}, PeerCertificates: []*x509.Certificate{c}}, time.Now()))
	})
}
