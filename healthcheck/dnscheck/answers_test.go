package dnscheck

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/lbd-project/lbd/healthcheck"
)

// answerOf returns the reply with these records, given as in a zone file.
func answerOf(t testing.TB, rcode int, records ...string) reply {
	t.Helper()
	r := reply{rcode: rcode}
	for _, s := range records {
		rr, err := dns.NewRR(s)
		if err != nil {
			t.Fatal(err)
		}
		r.records = append(r.records, rr)
	}
	return r
}

func TestJudge(t *testing.T) {
	two := []string{"example.org. 60 IN A 192.0.2.1", "example.org. 60 IN A 192.0.2.2"}
	mx := []string{"example.org. 60 IN MX 10 Mail.Example.ORG.", "example.org. 60 IN MX 20 other.example.org."}
	txt := []string{`example.org. 60 IN TXT "v=spf1 " "-all"`, `example.org. 60 IN TXT "say \"hi\" \; \200"`}
	tests := []struct {
		name  string
		check Check
		rcode int
		got   []string
		want  string // the error
	}{
		{"any", Check{Type: 1}, 0, two, ""},
		{"none", Check{Type: 1}, 0, nil, ""},
		{"rcode", Check{Type: 1}, 2, nil, "response code SERVFAIL, want NOERROR"},
		{"one of two rcodes", Check{Type: 1, Rcodes: []int{5, 3}}, 3, nil, ""},
		{"neither rcode", Check{Type: 1, Rcodes: []int{5, 3}}, 0, nil, "response code NOERROR, want NXDOMAIN or REFUSED"},
		{"rcode before answers", Check{Type: 1, Answers: []string{"192.0.2.1"}}, 3, two, "response code NXDOMAIN, want NOERROR"},

		{"all", Check{Type: 1, Answers: []string{"192.0.2.2", "192.0.2.1"}, Exact: true}, 0, two, ""},
		{"some", Check{Type: 1, Answers: []string{"192.0.2.2"}}, 0, two, ""},
		{"not exact", Check{Type: 1, Answers: []string{"192.0.2.2"}, Exact: true}, 0, two, "answer has 192.0.2.1 too"},
		{"missing", Check{Type: 1, Answers: []string{"192.0.2.2", "192.0.2.3"}}, 0, two, "answer without 192.0.2.3: it has 192.0.2.1, 192.0.2.2"},
		{"missing in nothing", Check{Type: 1, Answers: []string{"192.0.2.2"}}, 0, nil, "answer without 192.0.2.2: it is empty"},
		{"behind an alias", Check{Type: 1, Answers: []string{"192.0.2.1"}, Exact: true}, 0, []string{
			"web.example.net. 60 IN A 192.0.2.1", "EXAMPLE.org. 60 IN CNAME Web.example.org.", "web.example.org. 60 IN CNAME web.EXAMPLE.net.",
		}, ""},
		{"behind another's alias", Check{Type: 1, Answers: []string{"192.0.2.1"}}, 0, []string{
			"www.example.net. 60 IN CNAME web.example.net.", "web.example.net. 60 IN A 192.0.2.1",
		}, "answer without 192.0.2.1: it is empty"},

		{"AAAA in another form", Check{Type: 28, Answers: []string{"2001:db8:0:0::1"}}, 0, []string{"example.org. 60 IN AAAA 2001:DB8::1"}, ""},
		{"CNAME", Check{Type: 5, Answers: []string{"web.example.net"}, Exact: true}, 0, []string{"example.org. 60 IN CNAME web.example.net."}, ""},
		{"NS", Check{Type: 2, Answers: []string{"ns1.example.org.", "NS2.example.org"}, Exact: true}, 0, []string{"example.org. 60 IN NS ns2.example.org.", "example.org. 60 IN NS ns1.example.org."}, ""},
		{"PTR", Check{Type: 12, Answers: []string{"host.example.org"}}, 0, []string{"example.org. 60 IN PTR host.example.org."}, ""},
		{"SOA", Check{Type: 6, Answers: []string{"ns. admin.example.org. 1 2 3 4 5"}}, 0, []string{"example.org. 60 IN SOA ns. admin.example.org. 1 2 3 4 5"}, ""},
		{"SOA of another serial", Check{Type: 6, Answers: []string{"ns. admin. 2 2 3 4 5"}}, 0, []string{"example.org. 60 IN SOA ns. admin. 1 2 3 4 5"}, "answer without ns. admin. 2 2 3 4 5: it has ns. admin. 1 2 3 4 5"},
		{"MX in any order, without dots", Check{Type: 15, Answers: []string{"20 other.example.org", "10 mail.example.org"}, Exact: true}, 0, mx, ""},
		{"MX of another preference", Check{Type: 15, Answers: []string{"11 mail.example.org"}}, 0, mx, "answer without 11 mail.example.org.: it has 10 Mail.Example.ORG., 20 other.example.org."},
		{"SRV", Check{Type: 33, Answers: []string{"0 5 5060 sip.example.org."}}, 0, []string{"example.org. 60 IN SRV 0 5 5060 SIP.example.org."}, ""},
		{"CAA", Check{Type: 257, Answers: []string{`0 issue "ca.example.net"`}}, 0, []string{`example.org. 60 IN CAA 0 issue "ca.example.net"`}, ""},
		{"CAA in another case", Check{Type: 257, Answers: []string{`0 issue "CA.example.net"`}}, 0, []string{`example.org. 60 IN CAA 0 issue "ca.example.net"`}, `answer without 0 issue "CA.example.net": it has 0 issue "ca.example.net"`},
		{"TXT bare", Check{Type: 16, Answers: []string{"v=spf1 -all"}}, 0, txt, ""},
		{"TXT bare with what needs quotes", Check{Type: 16, Answers: []string{"say \"hi\" ; \xc8"}}, 0, txt, ""},
		{"TXT quoted, divided elsewhere", Check{Type: 16, Answers: []string{`"v=sp" "f1 -all"`, `"say \"hi\" ; \200"`}, Exact: true}, 0, txt, ""},
		{"TXT in another case", Check{Type: 16, Answers: []string{"V=SPF1 -all"}}, 0, txt[:1], `answer without V=SPF1 -all: it has v=spf1 -all`},
		{"TXT of nothing", Check{Type: 16, Answers: []string{`""`}}, 0, []string{`example.org. 60 IN TXT ""`}, ""},
		{"HTTPS", Check{Type: 65, Answers: []string{"1 . alpn=h2"}}, 0, []string{`example.org. 60 IN HTTPS 1 . alpn="h2"`}, ""},
		{"unknown type", Check{Type: 65399, Answers: []string{`\# 2 ABcd`}, Exact: true}, 0, []string{`example.org. 60 IN TYPE65399 \# 2 abCD`}, ""},
		{"unknown type, other data", Check{Type: 65399, Answers: []string{`\# 2 abce`}}, 0, []string{`example.org. 60 IN TYPE65399 \# 2 abcd`}, `answer without \# 2 abce: it has \# 2 abcd`},

		{"hostile text", Check{Type: 16, Answers: []string{"x"}}, 0, []string{`example.org. 60 IN TXT "\027[31mred\010"`}, `answer without x: it has ?[31mred`},
		{"long list", Check{Type: 16, Answers: []string{"x"}}, 0, []string{
			"example.org. 60 IN TXT a", "example.org. 60 IN TXT b", "example.org. 60 IN TXT " + strings.Repeat("c", 200), "example.org. 60 IN TXT d", "example.org. 60 IN TXT e",
		}, `answer without x: it has a, b, ` + strings.Repeat("c", 77) + `... and 2 more`},
	}
	for _, tt := range tests {
		tt.check.Name = "example.org"
		k, err := tt.check.newChecker(target, healthcheck.Env{})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		q, err := k.question.query()
		if err != nil {
			t.Fatal(err)
		}
		_, err = k.want.judge(answerOf(t, tt.rcode, tt.got...), q)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s (-want +got):\n%s", tt.name, cmp.Diff(tt.want, got))
		}
	}
}

func TestDetail(t *testing.T) {
	q := query{name: "example.org.", kind: dns.TypeA}
	tests := []struct {
		reply reply
		want  string
	}{
		{answerOf(t, 0), "NOERROR, no answers"},
		{answerOf(t, 3), "NXDOMAIN, no answers"},
		{answerOf(t, 0, "example.org. 60 IN A 192.0.2.1"), "NOERROR, 1 answer"},
		{answerOf(t, 0, "example.org. 60 IN A 192.0.2.1", "example.org. 60 IN A 192.0.2.2"), "NOERROR, 2 answers"},
	}
	for _, tt := range tests {
		if got, _ := (expectation{}).judge(tt.reply, q); got != tt.want {
			t.Errorf("want %q, got %q", tt.want, got)
		}
	}
}

// FuzzAnswer takes any text for an expected answer. One that is taken is found
// in a reply that consists of it.
func FuzzAnswer(f *testing.F) {
	f.Add("192.0.2.1", uint16(1))
	f.Add("10 mail.example.org", uint16(15))
	f.Add(`"a" "b\200\""`, uint16(16))
	f.Add(`say "hi" \ ; `, uint16(16))
	f.Add(`0 issue "ca.example.net; account=1"`, uint16(257))
	f.Add(`\# 3 abcdef`, uint16(65399))
	f.Add(`1 . alpn=h2,h3 ipv4hint=192.0.2.1`, uint16(65))
	f.Fuzz(func(t *testing.T, text string, kind uint16) {
		if checkType(kind) != nil || kind == dns.TypeANY {
			return
		}
		r, err := parseAnswer(text, kind)
		if err != nil {
			return
		}
		rr := r.rr
		if kind == dns.TypeTXT {
			txt := &dns.TXT{Hdr: *rr.Header()}
			for s := r.text; s != ""; s = s[min(255, len(s)):] {
				txt.Txt = append(txt.Txt, escapeText(s[:min(255, len(s))]))
			}
			rr = txt
		}
		wire := make([]byte, 1<<16)
		n, err := dns.PackRR(rr, wire, 0, nil, false)
		if err != nil {
			if kind != dns.TypeTXT { // a bare text may be too long for a record
				t.Errorf("%q of %s cannot be sent: %v", text, typeText(kind), err)
			}
			return
		}
		back, _, err := dns.UnpackRR(wire[:n], 0)
		if err != nil {
			t.Fatalf("%q of %s is %v as sent, which cannot be read: %v", text, typeText(kind), rr, err)
		}
		if !r.equal(newRecord(back)) {
			t.Errorf("%q of %s is not found in %v", text, typeText(kind), back)
		}
	})
}

// escapeText is the other way round than unescape.
func escapeText(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		b.WriteByte('\\')
		b.WriteString(string([]byte{'0' + c/100, '0' + c/10%10, '0' + c%10}))
	}
	return b.String()
}
