package tlsopt

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/certtest"
)

func TestValidate(t *testing.T) {
	ca := certtest.New(t)
	own, other := ca.Issue(t, certtest.Spec{}), ca.Issue(t, certtest.Spec{})
	for _, tt := range []struct {
		name string
		o    *Options
		want string // part of the error, empty for none
	}{
		{"no TLS", nil, ""},
		{"zero", &Options{}, ""},
		{"all", &Options{ServerName: "10.0.0.1", SNI: "a_b.example", CA: ca.PEM(), ClientCert: own.CertPEM, ClientKey: own.KeyPEM, MinVersion: tls.VersionTLS10, ALPN: []string{"h2"}, WarnBefore: 1}, ""},
		{"v6 name", &Options{ServerName: "[2001:db8::1]"}, ""},
		{"SNI contradicts", &Options{SNI: "a.example", NoSNI: true}, "no SNI at once"},
		{"SNI address", &Options{SNI: "10.0.0.1"}, `SNI "10.0.0.1" is not a host name`},
		{"SNI v6", &Options{SNI: "::1"}, "is not a host name"},
		{"SNI port", &Options{SNI: "a.example:443"}, "is not a host name"},
		{"SNI dot", &Options{SNI: "a.example."}, "is not a host name"},
		{"SNI long", &Options{SNI: strings.Repeat("a.", 126) + "aa"}, "is not a host name"},
		{"SNI label", &Options{SNI: strings.Repeat("a", 64)}, "is not a host name"},
		{"name line", &Options{ServerName: "a\nb"}, `server name "a\nb" is neither`},
		{"version", &Options{MinVersion: 0x0300}, "minimum TLS version 0x0300"},
		{"future", &Options{MinVersion: 0x0305}, "minimum TLS version 0x0305"},
		{"warning", &Options{WarnBefore: -1}, "negative"},
		{"alpn", &Options{ALPN: []string{""}}, "1 to 255"},
		{"no CA", &Options{CA: []byte("x")}, "no certificate in the CA"},
		{"key as CA", &Options{CA: own.KeyPEM}, "no certificate in the CA"},
		{"broken CA", &Options{CA: append(ca.PEM(), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...)}, "certificate 2 of the CA: x509:"},
		{"cert alone", &Options{ClientCert: own.CertPEM}, "needs both"},
		{"key alone", &Options{ClientKey: own.KeyPEM}, "needs both"},
		{"wrong key", &Options{ClientCert: own.CertPEM, ClientKey: other.KeyPEM}, "client certificate: tls: private key does not match"},
	} {
		err := tt.o.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: want error with %q, got %v", tt.name, tt.want, err)
		}
	}
}

// TestKey changes each option and wants another key each time.
func TestKey(t *testing.T) {
	all := []*Options{
		nil, {}, {ServerName: "a"}, {SNI: "a"}, {NoSNI: true}, {SkipVerify: true}, {CA: []byte("a")}, {CA: []byte("b")},
		{ClientCert: []byte("a")}, {ClientKey: []byte("a")}, {MinVersion: tls.VersionTLS13}, {ALPN: []string{"a"}}, {ALPN: []string{"a", "b"}},
		{ALPN: []string{`a" alpn="b`}}, {WarnBefore: time.Hour},
	}
	seen := map[string]int{}
	for i, o := range all {
		if j, ok := seen[o.Key()]; ok {
			t.Errorf("options %d and %d share the key %q", j, i, o.Key())
		}
		seen[o.Key()] = i
	}
	if a, b := (&Options{}), (&Options{MinVersion: tls.VersionTLS12}); !a.Equal(b) {
		t.Errorf("the default written out has another key: %q, %q", a.Key(), b.Key())
	}
	secret := &Options{ClientKey: []byte("secret")}
	want := "tls key=2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b min=0x0303"
	if got := secret.Key(); got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}
