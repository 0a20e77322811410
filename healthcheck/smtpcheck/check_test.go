package smtpcheck

import (
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/checktest"
)

func TestKey(t *testing.T) {
	want := `smtp mark=0x1 starttls tls min=0x0303 name="lb.example"`
	c := Check{Via: healthcheck.Via{Mark: 1}, TLS: &tlsopt.Options{}, StartTLS: true, Name: "lb.example"}
	if diff := cmp.Diff(want, c.Key()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	keys := map[string]int{}
	for i, c := range []Check{
		{}, {Via: healthcheck.Via{Interface: "eth0"}}, {TLS: &tlsopt.Options{}}, {TLS: &tlsopt.Options{SNI: "a"}},
		{TLS: &tlsopt.Options{}, StartTLS: true}, {Name: "a"},
	} {
		if j, ok := keys[c.Key()]; ok {
			t.Errorf("checks %d and %d have the key %q", j, i, c.Key())
		}
		keys[c.Key()] = i
	}
	if got := (Check{Name: "localhost"}).Key(); got != (Check{}).Key() {
		t.Errorf("the default name makes another key: %q", got)
	}
}

func TestNewChecker(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no checks on " + runtime.GOOS)
	}
	tests := []struct {
		target string
		check  Check
		want   string
	}{
		{"10.0.0.2:25", Check{}, ""},
		{"[fd00::2]:465", Check{TLS: &tlsopt.Options{}, Name: "[IPv6:fd00::1]"}, ""},
		{"10.0.0.2:0", Check{}, "no port"},
		{"224.0.0.1:25", Check{}, "not the address of a host"},
		{"10.0.0.2:25", Check{StartTLS: true}, "STARTTLS without options of TLS"},
		{"10.0.0.2:25", Check{TLS: &tlsopt.Options{SNI: "a b"}}, `SNI "a b" is not a host name`},
		{"10.0.0.2:25", Check{Name: "a\r\nMAIL FROM:<b>"}, `name "a\r\nMAIL FROM:<b>" is not a host name or an address in brackets`},
		{"10.0.0.2:25", Check{Name: "é"}, `name "é" is not a host name or an address in brackets`},
		{"10.0.0.2:25", Check{Name: strings.Repeat("a", 256)}, `name "` + strings.Repeat("a", 256) + `" is not a host name or an address in brackets`},
	}
	for _, tt := range tests {
		c, err := tt.check.NewChecker(netip.MustParseAddrPort(tt.target), healthcheck.Env{})
		_, got, _ := strings.Cut(checktest.Text(err), "smtp check of "+tt.target+": ")
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.check, diff)
		}
		if (c == nil) != (err != nil) {
			t.Errorf("%+v: got %v with error %v", tt.check, c, err)
		}
	}
}
