package tlsopt

import (
	"crypto/tls"
	"errors"
	"testing"

	"github.com/lbd-project/lbd/internal/certtest"
)

// TestNames sends one name and verifies another.
func TestNames(t *testing.T) {
	ca := certtest.New(t)
	cert := ca.Issue(t, certtest.Spec{Names: []string{"a.example", "127.0.0.1", "fe80::1"}}).TLS
	sni := make(chan string, 1)
	to := serve(t, handshake(&tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		sni <- h.ServerName
		return &cert, nil
	}}))
	for _, tt := range []struct {
		name  string
		o     *Options
		host  string
		want  string // SNI
		fails bool
	}{
		{"host", &Options{}, "a.example", "a.example", false},
		{"other host", &Options{}, "b.example", "b.example", true},
		{"address", &Options{}, "127.0.0.1", "", false},
		{"zone", &Options{}, "fe80::1%eth0", "", false},
		{"brackets", &Options{}, "[fe80::1]", "", false},
		{"other address", &Options{}, "127.0.0.2", "", true},
		{"server name", &Options{ServerName: "a.example"}, "127.0.0.2", "a.example", false},
		{"server name in brackets", &Options{ServerName: "[fe80::1]"}, "b.example", "", false},
		{"SNI", &Options{SNI: "other.example"}, "a.example", "other.example", false},
		{"SNI is not what is verified", &Options{SNI: "a.example"}, "b.example", "a.example", true},
		{"SNI and name", &Options{SNI: "other.example", ServerName: "127.0.0.1"}, "b.example", "other.example", false},
		{"no SNI", &Options{NoSNI: true}, "a.example", "", false},
		{"no SNI, wrong name", &Options{NoSNI: true}, "b.example", "", true},
		{"not verified", &Options{SkipVerify: true, SNI: "c.example"}, "b.example", "c.example", false},
		{"neither", &Options{SkipVerify: true, NoSNI: true}, "b.example", "", false},
	} {
		tt.o.CA = ca.PEM()
		_, err := dial(t, to, tt.o, tt.host)
		var verify *tls.CertificateVerificationError
		if (err != nil) != tt.fails || err != nil && !errors.As(err, &verify) {
			t.Errorf("%s: want failure %v, got %v", tt.name, tt.fails, err)
		}
		if got := <-sni; got != tt.want {
			t.Errorf("%s: want SNI %q, got %q", tt.name, tt.want, got)
		}
	}
	if _, err := (&Options{}).Config(""); err == nil {
		t.Error("a certificate for nobody verifies")
	}
	// An own verification has the authorities too.
	stranger := &Options{CA: certtest.New(t).PEM(), SNI: "other.example"}
	if _, err := dial(t, to, stranger, "a.example"); err == nil || err.Error() != "TLS handshake: the certificate is not trusted: its issuer is unknown (CN=test root)" {
		t.Errorf("strange authority: got %v", err)
	}
	<-sni
}

// TestLongChain has a chain that takes several TLS records.
func TestLongChain(t *testing.T) {
	ca := certtest.New(t)
	below := ca.Intermediate(t, certtest.Spec{CommonName: "between", Padding: 20 << 10})
	cert := below.Issue(t, certtest.Spec{Names: []string{"a.example"}, Padding: 20 << 10}).TLS
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		to := serve(t, handshake(&tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: version}))
		state, err := dial(t, to, &Options{CA: ca.PEM()}, "a.example")
		if err != nil || len(state.PeerCertificates) != 2 || state.Version != version {
			t.Errorf("%s: want 2 certificates, got %d, %v", tls.VersionName(version), len(state.PeerCertificates), err)
		}
	}
}
