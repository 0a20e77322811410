package tlsopt

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/certtest"
)

func TestWarning(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Now()
	at := func(d time.Duration) time.Time { return now.Add(d).Truncate(time.Second) }
	root := certtest.New(t)
	between := root.Intermediate(t, certtest.Spec{CommonName: "between", NotAfter: at(50 * time.Minute)})
	names := []string{"a.example"}
	long := root.Issue(t, certtest.Spec{Names: names, NotAfter: at(10 * day)}).TLS
	issued := between.Issue(t, certtest.Spec{Names: names, NotAfter: at(2 * day)}).TLS
	unneeded := root.Issue(t, certtest.Spec{Names: names, NotAfter: at(10 * day)}).TLS
	unneeded.Certificate = append(unneeded.Certificate, between.X509.Raw)
	for _, tt := range []struct {
		name  string
		cert  tls.Certificate
		o     *Options
		later time.Duration // the look at the warning
		want  string
	}{
		{"off", long, &Options{}, 0, ""},
		{"far", long, &Options{WarnBefore: 9 * day}, 0, ""},
		{"near", long, &Options{WarnBefore: 11 * day}, 0, "the certificate expires in 9 days: " + stamp(at(10*day))},
		{"a day", long, &Options{WarnBefore: 11 * day}, 8*day + time.Hour, "the certificate expires in 1 day: " + stamp(at(10*day))},
		{"hours", long, &Options{WarnBefore: 11 * day}, 9*day + time.Hour, "the certificate expires within a day: " + stamp(at(10*day))},
		{"over", long, &Options{WarnBefore: 1, SkipVerify: true}, 11 * day, "the certificate has expired: " + stamp(at(10*day))},
		{"issuer first", issued, &Options{WarnBefore: time.Hour}, 0, "the issuing certificate of between expires within a day: " + stamp(at(50*time.Minute))},
		{"issuer first, other name sent", issued, &Options{WarnBefore: time.Hour, SNI: "b.example"}, 0, "the issuing certificate of between expires within a day: " + stamp(at(50*time.Minute))},
		{"issuer not verified", issued, &Options{WarnBefore: time.Hour, SkipVerify: true}, 0, ""},
		{"what the server need not send", unneeded, &Options{WarnBefore: time.Hour}, 0, ""},
	} {
		tt.o.CA = root.PEM()
		state, err := dial(t, serve(t, handshake(&tls.Config{Certificates: []tls.Certificate{tt.cert}})), tt.o, "a.example")
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := tt.o.Warning(state, now.Add(tt.later)); got != tt.want {
			t.Errorf("%s: want %q, got %q", tt.name, tt.want, got)
		}
	}
	if got := (*Options)(nil).Warning(tls.ConnectionState{}, now); got != "" {
		t.Errorf("no TLS: got %q", got)
	}
}
