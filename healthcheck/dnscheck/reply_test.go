package dnscheck

import (
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// ask is the query of the tests: example.org. A with id 0x1234.
var ask = query{id: 0x1234, name: "example.org.", kind: dns.TypeA}

// The parts of messages, in hex. Each message begins with a header, whose flags
// are 8180 for a reply: QR, RD and RA, and NOERROR.
const (
	askName  = "07 6578616d706c65 03 6f7267 00" // example.org.
	askA     = askName + "0001 0001"
	optOf    = "00 0029 04d0" // OPT of the root, size 1232
	answerA  = "c00c 0001 0001 0000003c 0004 c0000201"
	answerA2 = "c00c 0001 0001 0000003c 0004 c0000202"
)

func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseReply(t *testing.T) {
	const notReply = "not ours: "
	tests := []struct {
		name, msg string
		want      string // code and records, or the error
	}{
		{"good", "1234 8180 0001 0001 0000 0000" + askA + answerA, "NOERROR 192.0.2.1"},
		{"two records", "1234 8180 0001 0002 0000 0000" + askA + answerA + answerA2, "NOERROR 192.0.2.1 192.0.2.2"},
		{"none", "1234 8180 0001 0000 0000 0000" + askA, "NOERROR"},
		{"no such name", "1234 8183 0001 0000 0000 0000" + askA, "NXDOMAIN"},
		{"upper case", "1234 8180 0001 0001 0000 0000" + "07 4558414d504c45 03 4f5247 00 0001 0001" + answerA, "NOERROR 192.0.2.1"},
		{"upper case of the owner", "1234 8180 0001 0001 0000 0000" + askA + "07 4558414d504c45 03 4f5247 00" + answerA[4:], "NOERROR 192.0.2.1"},
		{"no question", "1234 8180 0000 0001 0000 0000" + askName + answerA[4:], notReply + "0 questions"},
		{"no question in an error", "1234 8181 0000 0000 0000 0000", "FORMERR"},
		{"another name's record", "1234 8180 0001 0001 0000 0000" + askA + "00" + answerA[4:], "NOERROR"},
		{"another class's record", "1234 8180 0001 0001 0000 0000" + askA + "c00c 0001 0003 0000003c 0004 c0000201", "NOERROR"},
		{"another type's record", "1234 8180 0001 0001 0000 0000" + askA + "c00c 0010 0001 0000003c 0004 03616263", "NOERROR"},
		{"broken record of another type", "1234 8180 0001 0001 0000 0000" + askA + "c00c 000f 0001 0000003c 0001 00", "NOERROR"},
		{"alias", "1234 8180 0001 0002 0000 0000" + askA + "01 62" + "c00c" + answerA[4:] + "c00c 0005 0001 0000003c 0004 01 62 c00c", "NOERROR 192.0.2.1"},
		{"alias of itself", "1234 8180 0001 0001 0000 0000" + askA + "c00c 0005 0001 0000003c 0002 c00c", "NOERROR"},
		{"OPT, not asked for", "1234 8180 0001 0001 0000 0001" + askA + answerA + optOf + "00 00 0000 0000", "NOERROR 192.0.2.1"},
		{"OPT in the answer section", "1234 8180 0001 0001 0000 0000" + askA + optOf + "01 00 0000 0000", "NOERROR"},
		{"truncated", "1234 8380 0001 0001 0000 0000" + askA, "truncated"},
		{"truncated within a record", "1234 8380 0001 0001 0000 0000" + askA + answerA[:21], "truncated"},
		{"bytes behind the message", "1234 8180 0001 0001 0000 0000" + askA + answerA + "0000", "NOERROR 192.0.2.1"},

		{"empty", "", notReply + "a message of 0 bytes"},
		{"half a header", "1234 8180 0001", notReply + "a message of 6 bytes"},
		{"another id", "1235 8180 0001 0001 0000 0000" + askA + answerA, notReply + "another id"},
		{"id in the other byte order", "3412 8180 0001 0001 0000 0000" + askA + answerA, notReply + "another id"},
		{"a query", "1234 0100 0001 0001 0000 0000" + askA + answerA, notReply + "a query"},
		{"notify", "1234 a180 0001 0001 0000 0000" + askA + answerA, notReply + "another opcode"},
		{"two questions", "1234 8180 0002 0001 0000 0000" + askA + askA + answerA, notReply + "2 questions"},
		{"another name", "1234 8180 0001 0001 0000 0000" + "00 0001 0001" + answerA, notReply + "another question"},
		{"another type", "1234 8180 0001 0001 0000 0000" + askName + "001c 0001" + answerA, notReply + "another question"},
		{"another class", "1234 8180 0001 0001 0000 0000" + askName + "0001 0003" + answerA, notReply + "another question"},
		{"a longer name", "1234 8180 0001 0001 0000 0000" + "01 61" + askA + answerA, notReply + "another question"},

		{"question cut", "1234 8180 0001 0001 0000 0000" + askA[:20], "broken reply: question: dns: buffer size too small"},
		{"question without class", "1234 8180 0001 0001 0000 0000" + askName + "0001", "broken reply: question: cut short"},
		{"name points to itself", "1234 8180 0001 0001 0000 0000" + "c00c 0001 0001", "broken reply: question: dns: too many compression pointers"},
		{"names point to each other", "1234 8180 0001 0001 0000 0000" + askA + "c01f c01d" + answerA[4:], "broken reply: dns: too many compression pointers"},
		{"label points before itself", "1234 8180 0001 0001 0000 0000" + askA + "01 61 c01d" + answerA[4:], "broken reply: dns: too many compression pointers"},
		{"pointer beyond the end", "1234 8180 0001 0001 0000 0000" + askA + "ffff" + answerA[4:], "broken reply: dns: buffer size too small"},
		{"reserved label kind", "1234 8180 0001 0001 0000 0000" + askA + "41 61 00" + answerA[4:], "broken reply: dns: bad rdata"},
		{"label beyond the end", "1234 8180 0001 0001 0000 0000" + askA + "3f 61", "broken reply: dns: buffer size too small"},
		{"fewer records than announced", "1234 8180 0001 ffff 0000 0000" + askA + answerA, "broken reply: fewer records than announced"},
		{"record cut", "1234 8180 0001 0001 0000 0000" + askA + answerA[:31], "broken reply: record cut short"},
		{"data beyond the end", "1234 8180 0001 0001 0000 0000" + askA + "c00c 0001 0001 0000003c 0005 c0000201", "broken reply: record cut short"},
		{"address of 3 bytes", "1234 8180 0001 0001 0000 0000" + askA + "c00c 0001 0001 0000003c 0003 c00002", "broken reply: A record: A: dns: overflow unpacking a"},
		{"address of 5 bytes", "1234 8180 0001 0001 0000 0000" + askA + "c00c 0001 0001 0000003c 0005 c000020102", "broken reply: A record: dns: bad rdlength"},
		{"alias loops", "1234 8180 0001 0001 0000 0000" + askA + "c00c 0005 0001 0000003c 0002 c029", "broken reply: CNAME record: CNAME.Target: dns: too many compression pointers"},
		{"garbage", "1234 8180 0001 0001 0000 0000" + strings.Repeat("a5", 60), "broken reply: question: dns: bad rdata"},
	}
	for _, tt := range tests {
		r, err := parseReply(fromHex(t, tt.msg), ask)
		var got string
		var foreign notOurs
		switch {
		case errors.As(err, &foreign):
			got = notReply + err.Error()
		case err != nil:
			got = err.Error()
		case r.truncated:
			got = "truncated"
		default:
			got = rcodeText(r.rcode)
			for _, rr := range r.answer(ask) {
				got += " " + newRecord(rr).text
			}
		}
		if got != tt.want {
			t.Errorf("%s (-want +got):\n%s", tt.name, cmp.Diff(tt.want, got))
		}
		if err != nil && !cmp.Equal(r, reply{}, cmp.AllowUnexported(reply{})) {
			t.Errorf("%s: got %+v beside error %v", tt.name, r, err)
		}
	}
}

// TestParseReplyMemory has 32,000 names of 255 bytes in 64 KiB, each a pointer.
func TestParseReplyMemory(t *testing.T) {
	long := strings.Repeat("3f"+strings.Repeat("00", 63), 3) + "3d" + strings.Repeat("00", 61) + "00"
	msg := fromHex(t, "1234 8180 0001 0001 0000 0000"+askA+"c00c 0037 0001 00000000 0000 00000000")
	at := len(msg)
	msg = append(msg, fromHex(t, long)...)
	for len(msg)+2 <= 65535 {
		msg = append(msg, 0xc0, byte(at))
	}
	n := len(msg) - (at - 4)
	msg[at-6], msg[at-5] = byte(n>>8), byte(n)
	var r reply
	var err error
	got := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r, err = parseReply(msg, ask)
		}
	}).AllocedBytesPerOp()
	if err != nil || len(r.records) != 0 {
		t.Fatalf("want a record that does not count, got %+v, %v", r, err)
	}
	if got > 100_000 {
		t.Errorf("a reply of 64 KiB takes %d bytes", got)
	}
}

// TestQuery has the library read what was sent.
func TestQuery(t *testing.T) {
	tests := []struct {
		name string
		ask  question
		want string
	}{
		{"plain", question{name: "example.org.", kind: dns.TypeMX}, "example.org. IN MX, RD true"},
		{"no recursion", question{name: ".", kind: dns.TypeSOA, noRecursion: true}, ". IN SOA, RD false"},
	}
	for _, tt := range tests {
		q, err := tt.ask.query()
		if err != nil {
			t.Fatal(err)
		}
		var m dns.Msg
		if err := m.Unpack(q.wire); err != nil || len(m.Question) != 1 || m.Id != q.id || m.Response {
			t.Fatalf("%s: got %v, %v", tt.name, &m, err)
		}
		asked := m.Question[0]
		got := strings.ToLower(asked.Name) + " " + dns.Class(asked.Qclass).String() + " " + typeText(asked.Qtype) +
			", RD " + strconv.FormatBool(m.RecursionDesired)
		if got != tt.want || asked.Name != q.name {
			t.Errorf("%s: want %q, got %q, %s", tt.name, tt.want, got, asked.Name)
		}
	}
}

// TestQueryRandom asks 64 times: ids differ.
func TestQueryRandom(t *testing.T) {
	ids := map[uint16]bool{}
	for range 64 {
		q, err := question{name: "example.org.", kind: dns.TypeA}.query()
		if err != nil {
			t.Fatal(err)
		}
		ids[q.id] = true
	}
	if len(ids) < 60 {
		t.Errorf("64 queries had %d ids", len(ids))
	}
}

func FuzzParseReply(f *testing.F) {
	for _, s := range []string{
		"1234 8180 0001 0002 0000 0001" + askA + answerA + answerA2 + optOf + "01 00 0000 0000",
		"1234 8180 0001 0002 0000 0000" + askA + "01 62" + "c00c" + answerA[4:] + "c00c 0005 0001 0000003c 0004 01 62 c00c",
		"1234 8380 0001 0001 0000 0000" + askA,
		"1234 8180 0001 0001 0000 0000" + "c00c 0001 0001",
	} {
		f.Add(fromHex(f, s), uint16(dns.TypeA))
		f.Add(fromHex(f, s), uint16(dns.TypeANY))
	}
	f.Fuzz(func(t *testing.T, msg []byte, kind uint16) {
		q := ask
		q.kind = kind
		before := slices.Clone(msg)
		r, err := parseReply(msg, q)
		if !slices.Equal(before, msg) {
			t.Fatal("the message was changed")
		}
		if err != nil {
			if !cmp.Equal(r, reply{}, cmp.AllowUnexported(reply{})) {
				t.Fatalf("got %+v beside error %v", r, err)
			}
			return
		}
		// Whatever it is, it can be judged.
		want, err := parseAnswers([]string{"192.0.2.1"}, dns.TypeA)
		if err != nil {
			t.Fatal(err)
		}
		detail, err := expectation{rcodes: []int{r.rcode}, answers: want, exact: true}.judge(r, q)
		if len(detail) > 100 || err != nil && len(err.Error()) > 2000 {
			t.Fatalf("got %d bytes of detail, error %v", len(detail), err)
		}
		// The library reads whole messages; where it can, both must agree.
		var m dns.Msg
		if r.truncated || m.Unpack(msg) != nil {
			return
		}
		if m.Id != q.id || !m.Response {
			t.Fatalf("took a message with id %d, response %t", m.Id, m.Response)
		}
		var all []string
		for _, rr := range m.Answer {
			h := rr.Header()
			if h.Class == dns.ClassINET && (h.Rrtype == q.kind || h.Rrtype == dns.TypeCNAME || q.kind == dns.TypeANY) {
				all = append(all, rr.String())
			}
		}
		var got []string
		for _, rr := range r.records {
			got = append(got, rr.String())
		}
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("records (-library +ours):\n%s", diff)
		}
	})
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"", ".", "example.org", `a\.b\255.org.`, "a..b", strings.Repeat("a.", 127), `\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, err := parseName(name)
		if err != nil {
			return
		}
		wire := make([]byte, 255)
		n, err := dns.PackDomainName(got, wire, 0, nil, false)
		if err != nil {
			t.Fatalf("%q becomes %q, which cannot be sent: %v", name, got, err)
		}
		back, _, err := dns.UnpackDomainName(wire[:n], 0)
		if back != got || err != nil {
			t.Fatalf("%q becomes %q, which comes back as %q, %v", name, got, back, err)
		}
		if again, err := parseName(got); again != got || err != nil {
			t.Fatalf("%q becomes %q, and that %q, %v", name, got, again, err)
		}
	})
}
