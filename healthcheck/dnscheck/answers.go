package dnscheck

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/lbd-project/lbd/healthcheck"
)

// expectation is what makes a reply healthy.
type expectation struct {
	rcodes  []int
	answers []record
	exact   bool
}

// record is the data of a record in a form to compare and to show.
type record struct {
	rr   dns.RR
	text string
	// plain means that the text is all there is to compare.
	plain bool
}

// newRecord returns the data of rr. Of TXT, only the text as a whole counts: how
// it is divided into strings is no matter of contents.
func newRecord(rr dns.RR) record {
	switch rr := rr.(type) {
	case *dns.TXT:
		return record{rr, unescape(strings.Join(rr.Txt, "")), true}
	case *dns.RFC3597: // a type that the library does not know
		return record{rr, fmt.Sprintf(`\# %d %s`, len(rr.Rdata)/2, strings.ToLower(rr.Rdata)), true}
	}
	return record{rr, strings.TrimPrefix(rr.String(), rr.Header().String()), false}
}

func (r record) equal(other record) bool {
	if r.plain || other.plain {
		return r.plain && other.plain && r.text == other.text
	}
	// The owner is no part of the data: a CNAME may have led to another one.
	expected := dns.Copy(r.rr)
	h := expected.Header()
	h.Name, h.Class = other.rr.Header().Name, other.rr.Header().Class
	return dns.IsDuplicate(expected, other.rr)
}

// unescape returns the bytes behind the text of a character string.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i+2 < len(s) && s[i] >= '0' && s[i] <= '9' {
			b.WriteByte((s[i]-'0')*100 + (s[i+1]-'0')*10 + s[i+2] - '0')
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// parseAnswers reads expected answers.
func parseAnswers(texts []string, kind uint16) ([]record, error) {
	if len(texts) > 0 && kind == dns.TypeANY {
		return nil, errors.New("expected answers need one type, not ANY")
	}
	var out []record
	for _, t := range texts {
		r, err := parseAnswer(t, kind)
		if err != nil {
			return nil, fmt.Errorf("expected answer %q: %w", t, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func parseAnswer(text string, kind uint16) (record, error) {
	if strings.ContainsAny(text, "\r\n") {
		return record{}, errors.New("more than one line")
	}
	head := dns.RR_Header{Name: ".", Rrtype: kind, Class: dns.ClassINET}
	if kind == dns.TypeTXT && !strings.HasPrefix(text, `"`) {
		return record{&dns.TXT{Hdr: head}, text, true}, nil
	}
	z := dns.NewZoneParser(strings.NewReader(fmt.Sprintf(". 0 IN %s %s\n", typeText(kind), text)), ".", "")
	rr, ok := z.Next()
	switch {
	case !ok:
		// The library's own error tells positions in a line of ours.
		return record{}, fmt.Errorf("not the data of %s as in a zone file", typeText(kind))
	case z.Comment() != "":
		return record{}, errors.New("a semicolon begins a comment: quote it")
	}
	// There and back, since names and numbers can be written in several ways.
	wire := make([]byte, dns.MaxMsgSize)
	n, err := dns.PackRR(rr, wire, 0, nil, false)
	if err == nil {
		rr, _, err = dns.UnpackRR(wire[:n], 0)
	}
	if err != nil {
		return record{}, fmt.Errorf("not the data of %s: %w", typeText(kind), err)
	}
	return newRecord(rr), nil
}

// judge says what is wrong with a reply, and what it has for people.
func (e expectation) judge(r reply, q query) (detail string, err error) {
	records := r.answer(q)
	detail = rcodeText(r.rcode)
	switch len(records) {
	case 0:
		detail += ", no answers"
	case 1:
		detail += ", 1 answer"
	default:
		detail += fmt.Sprintf(", %d answers", len(records))
	}
	if !slices.Contains(e.rcodes, r.rcode) {
		return detail, fmt.Errorf("response code %s, want %s", rcodeText(r.rcode), rcodeTexts(e.rcodes))
	}
	if len(e.answers) == 0 {
		return detail, nil
	}
	got := make([]record, 0, len(records))
	for _, rr := range records {
		got = append(got, newRecord(rr))
	}
	for _, want := range e.answers {
		if !slices.ContainsFunc(got, want.equal) {
			return detail, fmt.Errorf("answer without %s: %s", show(want.text), list(got))
		}
	}
	for _, g := range got {
		if e.exact && !slices.ContainsFunc(e.answers, func(want record) bool { return want.equal(g) }) {
			return detail, fmt.Errorf("answer has %s too", show(g.text))
		}
	}
	return detail, nil
}

// The most that an error shows of what a server sent.
const (
	maxShown = 80
	maxList  = 3
)

// show returns a text of the server's as it can be printed.
func show(text string) string {
	if len(text) > maxShown {
		return healthcheck.Printable(text[:maxShown-len("...")]) + "..."
	}
	return healthcheck.Printable(text)
}

func list(records []record) string {
	if len(records) == 0 {
		return "it is empty"
	}
	var b strings.Builder
	b.WriteString("it has ")
	for i, r := range records {
		if i == maxList {
			fmt.Fprintf(&b, " and %d more", len(records)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(show(r.text))
	}
	return b.String()
}
