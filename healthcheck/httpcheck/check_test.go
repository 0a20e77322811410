package httpcheck

import (
	"crypto/tls"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
)

var anywhere = netip.MustParseAddrPort("192.0.2.1:80")

func TestValidate(t *testing.T) {
	md5 := "md5:" + strings.Repeat("0A", 16)
	request := func(r Request) Check { return Check{Requests: []Request{r}} }
	tests := []struct {
		name  string
		check Check
		want  string // part of the error, empty for none
	}{
		{"zero", Check{}, ""},
		{"all", Check{TLS: &tlsopt.Options{ALPN: []string{"h2"}}, Version: Version2, Method: "POST", Host: "[2001:db8::1]:8443", Headers: []Header{{"X", "a\tb ü"}}, Body: []byte("x"), MaxBody: 1, Requests: []Request{{Path: "/a?b=%20c"}, {Path: "/", Status: StatusRanges{{100, 599}}, Digest: md5, Match: regexp.MustCompile("a"), Negate: true}}}, ""},
		{"version", Check{Version: "3"}, `HTTP version "3" is not one of`},
		{"method", Check{Method: "GET /"}, "cannot be used"},
		{"CONNECT", Check{Method: "CONNECT"}, "cannot be used"},
		{"host", Check{Host: "a b"}, `host "a b" is neither`},
		{"host lines", Check{Host: "a\r\nX: y"}, "is neither"},
		{"host v6", Check{Host: "2001:db8::1"}, "is neither"},
		{"host brackets", Check{Host: "[10.0.0.1]"}, "is neither"},
		{"host brackets name", Check{Host: "[a]:80"}, "is neither"},
		{"host zone", Check{Host: "[fe80::1%eth0]"}, "is neither"},
		{"host port", Check{Host: "a:0"}, "is neither"},
		{"host ports", Check{Host: "[::1]:65536"}, "is neither"},
		{"host user", Check{Host: "me@a"}, "is neither"},
		{"header name", Check{Headers: []Header{{"a b", ""}}}, "not a token"},
		{"header value", Check{Headers: []Header{{"a", "b\r\nc: d"}}}, "control characters"},
		{"header long", Check{Headers: []Header{{"a", strings.Repeat("a", 16<<10)}}}, "longer than"},
		{"header host", Check{Headers: []Header{{"host", "a"}}}, "header host cannot be set"},
		{"header length", Check{Headers: []Header{{"content-length", "1"}}}, "cannot be set"},
		{"header connection", Check{Headers: []Header{{"connection", "close"}}}, "cannot be set"},
		{"header connection in 1.0", Check{Version: Version10, Headers: []Header{{"connection", "close"}}}, ""},
		{"body", Check{Body: make([]byte, 1<<20+1)}, "at most 1048576 can be sent"},
		{"limit", Check{MaxBody: -1}, "not within 0 to 67108864"},
		{"limit too high", Check{MaxBody: 64<<20 + 1}, "not within"},
		{"many", Check{Requests: make([]Request, 65)}, "at most 64 can be made"},
		{"no path", request(Request{}), `request of "": a path begins with "/"`},
		{"path space", request(Request{Path: "/a b"}), "a path begins"},
		{"path line", request(Request{Path: "/a\r\nX: y"}), "a path begins"},
		{"path fragment", request(Request{Path: "/a#b"}), "a path begins"},
		{"path umlaut", request(Request{Path: "/ü"}), "a path begins"},
		{"path odd", request(Request{Path: "//a/%zz"}), ""},
		{"path odd, HTTP/2", Check{Version: Version2, Requests: []Request{{Path: "//a/b"}}}, ""},
		{"path escape, HTTP/2", Check{Version: Version2, Requests: []Request{{Path: "/%zz"}}}, "canonical"},
		{"status low", request(Request{Path: "/", Status: StatusRanges{{99, 200}}}), "not within 100 to 599"},
		{"status high", request(Request{Path: "/", Status: StatusRanges{{200, 600}}}), "not within"},
		{"status order", request(Request{Path: "/", Status: StatusRanges{{300, 200}}}), "ends before it begins"},
		{"digest", request(Request{Path: "/", Digest: "crc:00"}), "begins with neither"},
		{"digest hex", request(Request{Path: "/", Digest: "md5:xy"}), "invalid byte"},
		{"digest length", request(Request{Path: "/", Digest: "sha256:00"}), "has 2 digits, want 64"},
		{"negation", request(Request{Path: "/", Negate: true}), "without an expression"},
		{"headers", request(Request{Path: "/", Headers: []HeaderMatch{{Name: "X-A", Match: regexp.MustCompile("a"), Negate: true}}}), ""},
		{"header name expected", request(Request{Path: "/", Headers: []HeaderMatch{{Name: "X A", Match: regexp.MustCompile("a")}}}), `header name "X A" is not a token`},
		{"header framing expected", request(Request{Path: "/", Headers: []HeaderMatch{{Name: "transfer-encoding", Match: regexp.MustCompile("a")}}}), "cannot be expected"},
		{"header without expression", request(Request{Path: "/", Headers: []HeaderMatch{{Name: "X-A"}}}), "without an expression"},
		{"headers many", request(Request{Path: "/", Headers: make([]HeaderMatch, 65)}), "at most 64 can be"},
		{"offsets", request(Request{Path: "/", Match: regexp.MustCompile("a"), MinOffset: 3, MaxOffset: 3}), ""},
		{"offsets swapped", request(Request{Path: "/", Match: regexp.MustCompile("a"), MinOffset: 3, MaxOffset: 2}), "no match begins at offset 3 to 2"},
		{"offset below 0", request(Request{Path: "/", Match: regexp.MustCompile("a"), MinOffset: -1}), "no match begins"},
		{"offset alone", request(Request{Path: "/", MaxOffset: 1}), "without an expression"},
		{"HEAD with digest", Check{Method: "HEAD", Requests: []Request{{Path: "/", Digest: md5}}}, "no body"},
		{"TLS", Check{TLS: &tlsopt.Options{MinVersion: 1}}, "minimum TLS version"},
		{"ALPN without h2", Check{Version: Version2, TLS: &tlsopt.Options{ALPN: []string{"http/1.1"}}}, "is not for HTTP version"},
		{"ALPN with h2", Check{TLS: &tlsopt.Options{ALPN: []string{"h2", "http/1.1"}}}, "is not for HTTP version"},
		{"via", Check{Via: healthcheck.Via{Source: netip.MustParseAddr("::1")}}, "source ::1"},
	}
	for _, tt := range tests {
		_, err := tt.check.NewChecker(anywhere, healthcheck.Env{})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: want error with %q, got %v", tt.name, tt.want, err)
		}
	}
	for _, target := range []string{"192.0.2.1:0", "0.0.0.0:80", "[fe80::1]:80"} {
		if _, err := (Check{}).NewChecker(netip.MustParseAddrPort(target), healthcheck.Env{}); err == nil {
			t.Errorf("target %s: want an error", target)
		}
	}
}

// TestKey changes each option and wants another key each time.
func TestKey(t *testing.T) {
	request := func(r Request) Check { return Check{Requests: []Request{r}} }
	all := []Check{
		{}, {Version: Version10}, {Version: Version2}, {Method: "POST"}, {Host: "a"}, {Body: []byte("a")}, {MaxBody: 1}, {TLS: &tlsopt.Options{}},
		{TLS: &tlsopt.Options{MinVersion: tls.VersionTLS13}}, {Via: healthcheck.Via{Mark: 1}},
		{Headers: []Header{{"a", "b"}}}, {Headers: []Header{{"a", "c"}}}, {Headers: []Header{{"a", "b"}, {"a", "b"}}},
		request(Request{Path: "/a"}), request(Request{Path: "/a", Status: StatusRanges{{200, 200}}}),
		request(Request{Path: "/a", Digest: "md5:00"}), request(Request{Path: "/a", Digest: "md5:01"}),
		request(Request{Path: "/a", Match: regexp.MustCompile("a")}), request(Request{Path: "/a", Match: regexp.MustCompile("a"), Negate: true}),
		request(Request{Path: "/a", Headers: []HeaderMatch{{"a", regexp.MustCompile("b"), false}}}), request(Request{Path: "/a", Headers: []HeaderMatch{{"a", regexp.MustCompile("b"), true}}}),
		request(Request{Path: "/a", Headers: []HeaderMatch{{"b", regexp.MustCompile("b"), false}}}), request(Request{Path: "/a", Headers: []HeaderMatch{{"a", regexp.MustCompile("c"), false}}}),
		request(Request{Path: "/a", Match: regexp.MustCompile("a"), MinOffset: 1}), request(Request{Path: "/a", Match: regexp.MustCompile("a"), MaxOffset: 1}),
		{Requests: []Request{{Path: "/a"}, {Path: "/b"}}}, {Requests: []Request{{Path: "/b"}, {Path: "/a"}}},
	}
	seen := map[string]int{}
	for i, c := range all {
		if j, ok := seen[c.Key()]; ok {
			t.Errorf("checks %d and %d share the key %q", j, i, c.Key())
		}
		seen[c.Key()] = i
	}
	spelled := Check{Version: Version11, Method: "GET", MaxBody: DefaultMaxBody, Requests: []Request{{Path: "/", Status: StatusRanges{{200, 299}}}}}
	if !spelled.Equal(Check{}) {
		t.Errorf("the defaults written out have another key: %q, %q", spelled.Key(), Check{}.Key())
	}
	if diff := cmp.Diff(Check{}, spelled); diff != "" {
		t.Errorf("equal checks (-want +got)\n%s", diff)
	}
	secret := Check{Headers: []Header{{"Authorization", "Basic c2VjcmV0"}}, Body: []byte("password")}
	for _, s := range []string{"c2VjcmV0", "password"} {
		if strings.Contains(secret.Key(), s) {
			t.Errorf("the key %q has the secret %q", secret.Key(), s)
		}
	}
}

func TestParseStatusRanges(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"200", "200"},
		{"200-299", "200-299"},
		{" 200 - 204 , 301,404", "200-204,301,404"},
		{"3xx", "300-399"},
		{"2XX,5xx", "200-299,500-599"},
		{"100-599", "100-599"},
	} {
		s, err := ParseStatusRanges(tt.in)
		if err != nil || s.String() != tt.want {
			t.Errorf("%q: want %q, got %v, %v", tt.in, tt.want, s, err)
		}
	}
	for _, in := range []string{"", "200,", "20", "2000", "099", "600", "99-200", "299-200", "6xx", "0xx", "xx", "-200", "+20", "200-", "200-2xx", "2x0", "٢٠٠"} {
		if s, err := ParseStatusRanges(in); err == nil {
			t.Errorf("%q: want an error, got %v", in, s)
		}
	}
	if s := (StatusRanges)(nil); s.Contain(199) || !s.Contain(200) || !s.Contain(299) || s.Contain(300) || s.String() != "200-299" {
		t.Errorf("nil is %v", s)
	}
	if s := (StatusRanges{}); s.Contain(200) {
		t.Error("an empty list has 200")
	}
}

func TestHostOf(t *testing.T) {
	for _, tt := range []struct {
		target string
		secure bool
		want   string
	}{
		{"192.0.2.1:80", false, "192.0.2.1"},
		{"192.0.2.1:443", true, "192.0.2.1"},
		{"192.0.2.1:443", false, "192.0.2.1:443"},
		{"[2001:db8::1]:80", false, "[2001:db8::1]"},
		{"[2001:db8::1]:80", true, "[2001:db8::1]:80"},
		{"[::ffff:192.0.2.1]:80", false, "192.0.2.1"},
	} {
		got := hostOf(netip.MustParseAddrPort(tt.target), tt.secure)
		if got != tt.want {
			t.Errorf("%s, TLS %v: want %q, got %q", tt.target, tt.secure, tt.want, got)
		}
		if _, err := tlsopt.NameOf(got); err != nil {
			t.Errorf("%s: %v", tt.target, err)
		}
	}
}
