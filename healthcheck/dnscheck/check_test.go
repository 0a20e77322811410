package dnscheck

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
)

var target = netip.MustParseAddrPort("192.0.2.53:53")

func TestKey(t *testing.T) {
	tests := []struct {
		check Check
		want  string
	}{
		{Check{}, "dns udp . SOA rcode=0"},
		{Check{Name: ".", Type: 6, Transport: "udp", Rcodes: []int{0}}, "dns udp . SOA rcode=0"},
		{Check{Name: "Example.org", Type: 1}, "dns udp example.org. A rcode=0"},
		{Check{Name: `\101.example.org.`, Type: 1}, `dns udp e.example.org. A rcode=0`},
		{Check{Name: "a..b", Type: 65}, `dns udp "a..b" HTTPS rcode=0`},
		{Check{Transport: "tcp", Type: 65399}, "dns tcp . TYPE65399 rcode=0"},
		{Check{Rcodes: []int{3, 0, 3}}, "dns udp . SOA rcode=0 rcode=3"},
		{
			Check{
				Via:       healthcheck.Via{Mark: 7},
				Transport: TCP, Name: "x", Type: 16, NoRecursion: true,
				Answers: []string{"b", `a" exact`}, Exact: true,
			},
			`dns tcp x. TXT norecurse rcode=0 answer="a\" exact" answer="b" exact mark=0x7`,
		},
	}
	for _, tt := range tests {
		if got := tt.check.Key(); got != tt.want {
			t.Errorf("%+v (-want +got):\n%s", tt.check, cmp.Diff(tt.want, got))
		}
	}
}

// TestKeyHasEveryOption changes one option after the other.
func TestKeyHasEveryOption(t *testing.T) {
	seen := map[string]Check{}
	for _, c := range []Check{
		{},
		{Via: healthcheck.Via{Interface: "eth0"}},
		{Transport: TCP},
		{Name: "a"},
		{Name: "b"},
		{Type: 1},
		{Type: 2},
		{NoRecursion: true},
		{Rcodes: []int{5}},
		{Answers: []string{"a"}},
		{Answers: []string{"a", "b"}},
		{Answers: []string{`a" answer="b`}},
		{Answers: []string{"A"}},
		{Exact: true},
	} {
		key := c.Key()
		if other, ok := seen[key]; ok {
			t.Errorf("%+v and %+v have one key, %s", other, c, key)
		}
		seen[key] = c
	}
}

func TestNewChecker(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	// With its length bytes and the root's: 3*64 + 61 + 1 + 1.
	name255 := strings.Repeat(label63+".", 3) + strings.Repeat("b", 61)
	tests := []struct {
		name  string
		check Check
		want  string
	}{
		{"zero", Check{}, ""},
		{"no final dot", Check{Name: "example.org"}, ""},
		{"underscores", Check{Name: "_dns._udp.example.org.", Type: 33}, ""},
		{"slash of RFC 2317", Check{Name: "0/25.2.0.192.in-addr.arpa", Type: 12}, ""},
		{"63 bytes", Check{Name: label63 + ".org"}, ""},
		{"64 bytes", Check{Name: label63 + "a.org"}, `dns check: name "` + label63 + `a.org" has a label of more than 63 bytes`},
		{"63 escaped bytes", Check{Name: strings.Repeat(`\046`, 63) + ".org"}, ""},
		{"64 escaped bytes", Check{Name: strings.Repeat(`\.`, 64)}, `dns check: name "` + strings.Repeat(`\\.`, 64) + `" has a label of more than 63 bytes`},
		{"255 bytes", Check{Name: name255}, ""},
		{"255 bytes, final dot", Check{Name: name255 + "."}, ""},
		{"256 bytes", Check{Name: name255 + "b"}, `dns check: name "` + name255 + `b." has 256 bytes, more than 255`},
		{"empty label", Check{Name: "a..b"}, `dns check: name "a..b" has an empty label`},
		{"two final dots", Check{Name: "a.."}, `dns check: name "a.." has an empty label`},
		{"dot before", Check{Name: ".a"}, `dns check: name ".a" has an empty label`},
		{"two dots", Check{Name: ".."}, `dns check: name ".." has an empty label`},
		{"umlaut", Check{Name: "müller.example"}, `dns check: name "müller.example" is not ASCII: write its xn-- form`},
		{"space", Check{Name: "a b"}, `dns check: name "a b" has a space or control character`},
		{"line end", Check{Name: "a\n"}, `dns check: name "a\n" has a space or control character`},
		{"escaped space", Check{Name: `a\032b`}, ""},
		{"backslash last", Check{Name: `a\`}, `dns check: name "a\\": nothing after the backslash`},
		{"two digits", Check{Name: `a\25`}, `dns check: name "a\\25": want three digits up to 255 after the backslash`},
		{"256", Check{Name: `a\256`}, `dns check: name "a\\256": want three digits up to 255 after the backslash`},
		{"transport", Check{Transport: "quic"}, `dns check: transport "quic" is neither udp nor tcp`},
		{"OPT", Check{Type: 41}, "dns check: record type OPT cannot be asked for"},
		{"AXFR", Check{Type: 252}, "dns check: record type AXFR cannot be asked for"},
		{"ANY", Check{Type: 255}, ""},
		{"rcode", Check{Rcodes: []int{16}}, "dns check: response code 16 is not within 0 and 15"},
		{"negative rcode", Check{Rcodes: []int{-1}}, "dns check: response code -1 is not within 0 and 15"},
		{"exact", Check{Exact: true}, "dns check: exact without expected answers"},
		{"answer to ANY", Check{Type: 255, Answers: []string{"192.0.2.1"}}, "dns check: expected answers need one type, not ANY"},
		{"answer of another type", Check{Type: 1, Answers: []string{"2001:db8::1"}}, `dns check: expected answer "2001:db8::1": not the data of A as in a zone file`},
		{"answer with a comment", Check{Type: 16, Answers: []string{`"v=DMARC1"; p=none`}}, `dns check: expected answer "\"v=DMARC1\"; p=none": a semicolon begins a comment: quote it`},
		{"answer of two lines", Check{Type: 1, Answers: []string{"192.0.2.1\n$INCLUDE /etc/passwd"}}, `dns check: expected answer "192.0.2.1\n$INCLUDE /etc/passwd": more than one line`},
		{"no answer", Check{Type: 1, Answers: []string{""}}, `dns check: expected answer "": not the data of A as in a zone file`},
		{"unknown type", Check{Type: 65399, Answers: []string{`\# 2 abCD`}}, ""},
	}
	for _, tt := range tests {
		k, err := tt.check.NewChecker(target, healthcheck.Env{})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if (k == nil) != (err != nil) {
			t.Errorf("%s: got checker %v with error %v", tt.name, k, err)
		}
	}
}

func TestNewCheckerTarget(t *testing.T) {
	tests := map[string]string{
		"192.0.2.53:53":      "",
		"[2001:db8::53]:853": "",
		"192.0.2.53:0":       "dns check: no port",
		"0.0.0.0:53":         "dns check: not the address of a host",
	}
	for to, want := range tests {
		_, err := Check{}.NewChecker(netip.MustParseAddrPort(to), healthcheck.Env{})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: want %q, got %q", to, want, got)
		}
	}
}

func TestParseType(t *testing.T) {
	tests := map[string]uint16{
		"A": 1, "ns": 2, "CNAME": 5, "soa": 6, "PTR": 12, "MX": 15, "TXT": 16, "aaaa": 28,
		"SRV": 33, "CAA": 257, "any": 255, "255": 255, "HTTPS": 65, "65": 65, "TYPE65": 65, "type65399": 65399,
	}
	for text, want := range tests {
		if got, err := ParseType(text); got != want || err != nil {
			t.Errorf("%s: want %d, got %d, %v", text, want, got, err)
		}
	}
	for _, text := range []string{"", "B", "-1", "+1", "65536", "0", "TYPE", "TYPE0", "OPT", "AXFR", "IXFR", "TSIG", "65535", "A "} {
		if got, err := ParseType(text); err == nil {
			t.Errorf("%q: want an error, got %d", text, got)
		}
	}
}

func TestParseRcode(t *testing.T) {
	tests := map[string]int{"NOERROR": 0, "servfail": 2, "NXDOMAIN": 3, "Refused": 5, "5": 5, "15": 15}
	for text, want := range tests {
		if got, err := ParseRcode(text); got != want || err != nil {
			t.Errorf("%s: want %d, got %d, %v", text, want, got, err)
		}
	}
	for _, text := range []string{"", "16", "-1", "BADVERS", "OK"} {
		if got, err := ParseRcode(text); err == nil {
			t.Errorf("%q: want an error, got %d", text, got)
		}
	}
}

// TestRcodeText has every code come back.
func TestRcodeText(t *testing.T) {
	for r := range maxRcode + 1 {
		if got, err := ParseRcode(rcodeText(r)); got != r || err != nil {
			t.Errorf("%d is %q, which is %d, %v", r, rcodeText(r), got, err)
		}
	}
}
