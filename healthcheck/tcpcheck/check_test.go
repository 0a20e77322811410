package tcpcheck

import (
	"bytes"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/expect"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/checktest"
)

func text(s string) expect.Expect { return expect.Expect{Kind: expect.Text, Value: s} }

func not(e expect.Expect) expect.Expect {
	e.Negate = true
	return e
}

func TestKey(t *testing.T) {
	c := Check{
		Via: healthcheck.Via{Mark: 1},
		TLS: &tlsopt.Options{ServerName: "a.example"},
		Steps: []Step{
			{Send: []byte("secret"), Expect: text("a")},
			{Expect: not(text("b"))},
		},
	}
	want := `tcp-steps mark=0x1 tls name="a.example" min=0x0303` +
		` send=2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b expect=text "a" expect=no text "b"`
	if diff := cmp.Diff(want, c.Key()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Each option by itself makes it another probe.
	keys := map[string]int{}
	all := []Check{
		{},
		{Via: healthcheck.Via{Interface: "eth0"}},
		{TLS: &tlsopt.Options{}},
		{TLS: &tlsopt.Options{SkipVerify: true}},
		{Steps: []Step{{Send: []byte("a")}}},
		{Steps: []Step{{Send: []byte("b")}}},
		{Steps: []Step{{Send: []byte("a")}, {Send: []byte("b")}}},
		{Steps: []Step{{Send: []byte("ab")}}},
		{Steps: []Step{{Expect: text("a")}}},
		{Steps: []Step{{Expect: not(text("a"))}}},
		{Steps: []Step{{Expect: expect.Expect{Kind: expect.Regex, Value: "a"}}}},
		{Steps: []Step{{Expect: expect.Expect{Kind: expect.Text, Value: "a", Start: true}}}},
	}
	for i, c := range all {
		if j, ok := keys[c.Key()]; ok {
			t.Errorf("checks %d and %d have the key %q", j, i, c.Key())
		}
		keys[c.Key()] = i
	}
}

func TestNewChecker(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no checks on " + runtime.GOOS)
	}
	one := []Step{{Expect: text("a")}}
	tests := []struct {
		target string
		check  Check
		want   string
	}{
		{"10.0.0.2:25", Check{Steps: one}, ""},
		{"[::ffff:10.0.0.2]:25", Check{TLS: &tlsopt.Options{}}, ""},
		{"10.0.0.2:25", Check{}, ""},
		{"10.0.0.2:0", Check{Steps: one}, "no port"},
		{"0.0.0.0:25", Check{Steps: one}, "not the address of a host"},
		{"10.0.0.2:25", Check{Via: healthcheck.Via{Source: netip.MustParseAddr("::1")}, Steps: one}, "source ::1 is not of the target's address family"},
		{"10.0.0.2:25", Check{TLS: &tlsopt.Options{CA: []byte("x")}}, "no certificate in the CA (it must be PEM)"},
		{"10.0.0.2:25", Check{Steps: []Step{{Send: []byte("a")}, {}}}, "step 2: nothing to send or to expect"},
		{"10.0.0.2:25", Check{Steps: []Step{{Expect: expect.Expect{Kind: expect.Regex, Value: "("}}}}, "step 1: expected regex: error parsing regexp: missing closing ): `(`"},
		{"10.0.0.2:25", Check{Steps: []Step{{Send: bytes.Repeat([]byte("a"), MaxSend+1)}}}, "step 1: 4097 bytes to send are more than 4096"},
		{"10.0.0.2:25", Check{Steps: make([]Step, MaxSteps+1)}, "101 steps are more than 100"},
	}
	for _, tt := range tests {
		c, err := tt.check.NewChecker(netip.MustParseAddrPort(tt.target), healthcheck.Env{})
		_, got, _ := strings.Cut(checktest.Text(err), "tcp check of "+tt.target+": ")
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s %+v (-want +got):\n%s", tt.target, tt.check, diff)
		}
		if (c == nil) != (err != nil) {
			t.Errorf("%+v: got %v with error %v", tt.check, c, err)
		}
	}
}

func expectStart(s string) expect.Expect {
	return expect.Expect{Kind: expect.Text, Value: s, Start: true}
}
