package expect

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
)

// MaxValue is the greatest length of Expect.Value and of what Unescape and
// ParseHex return, in bytes.
const MaxValue = 4096

// Kind is how an Expect is written.
type Kind uint8

// The kinds. None, the zero value, expects nothing.
const (
	None Kind = iota
	Text
	Hex
	Regex
)

var kindNames = [...]string{None: "none", Text: "text", Hex: "hex", Regex: "regex"}

// String prints "none", "text", "hex", "regex", or the number.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return strconv.Itoa(int(k))
}

// Expect is a condition on an answer. The zero value is none, and met by
// anything; an answer without a byte meets no other, not even a negated one.
type Expect struct {
	Kind Kind
	// Value is, for Text, the bytes themselves (Unescape makes them of what
	// people write); for Hex, pairs of hexadecimal digits with X for any digit
	// and blanks between pairs where one likes; for Regex, an expression in
	// RE2's syntax, in which a character is one of UTF-8. Not empty, at most
	// MaxValue bytes.
	Value string
	// Negate asks for an answer that does not have it.
	Negate bool
	// Start asks for Text and Hex at the start of the answer; otherwise they may
	// be anywhere. A Regex says ^ itself.
	Start bool
}

// IsZero reports whether nothing is expected.
func (e Expect) IsZero() bool { return e == Expect{} }

// Validate returns the error that Compile would.
func (e Expect) Validate() error {
	_, err := e.Compile()
	return err
}

// Key is a canonical text of all fields, empty for the zero value.
func (e Expect) Key() string {
	if e.IsZero() {
		return ""
	}
	if e.Kind == Hex {
		return e.describe(strings.ToUpper(strings.Join(strings.Fields(e.Value), "")))
	}
	return e.describe(e.Value)
}

// String is the form for people, which cuts a long Value.
func (e Expect) String() string {
	if e.IsZero() {
		return "nothing"
	}
	const most = 60
	if len(e.Value) > most {
		return e.describe(e.Value[:most]) + "…"
	}
	return e.describe(e.Value)
}

func (e Expect) describe(value string) string {
	s := e.Kind.String()
	if e.Negate {
		s = "no " + s
	}
	if e.Start {
		s += " at the start"
	}
	return s + " " + strconv.Quote(value)
}

// Matcher judges answers by an Expect. It keeps nothing of them and is safe for
// concurrent use.
type Matcher struct {
	expect Expect
	// Text has want, Hex want and mask, Regex re.
	want, mask []byte
	re         *regexp.Regexp
}

// Compile returns the Matcher of e, or what is wrong with e.
func (e Expect) Compile() (*Matcher, error) {
	m := &Matcher{expect: e}
	var err error
	switch {
	case e.Kind == None && e.IsZero():
		return m, nil
	case e.Kind == None:
		return nil, errors.New("an expectation without a kind")
	case e.Kind > Regex:
		return nil, fmt.Errorf("unknown kind of expectation %v", e.Kind)
	case e.Value == "":
		return nil, fmt.Errorf("expected %v is empty, which any answer contains", e.Kind)
	case len(e.Value) > MaxValue:
		return nil, fmt.Errorf("expected %v has %d bytes, more than %d", e.Kind, len(e.Value), MaxValue)
	case e.Kind == Text:
		m.want = []byte(e.Value)
	case e.Kind == Hex:
		m.want, m.mask, err = parsePattern(e.Value)
	case e.Start:
		return nil, errors.New("expected regex at the start: begin it with ^ instead")
	default:
		m.re, err = compileRegex(e.Value)
	}
	if err != nil {
		return nil, fmt.Errorf("expected %v: %w", e.Kind, err)
	}
	return m, nil
}

// compileRegex says of what other engines have and RE2 lacks that it does: regexp takes
// (?<= for the misspelled name of a group.
func compileRegex(expr string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(expr)
	if e := (*syntax.Error)(nil); errors.As(err, &e) {
		for _, begin := range []string{"(?=", "(?!", "(?<=", "(?<!"} {
			if strings.HasPrefix(e.Expr, begin) {
				return nil, fmt.Errorf("%w: the syntax of RE2 has no look-ahead nor look-behind", err)
			}
		}
	}
	return re, err
}

// Expect returns what m was compiled from.
func (m *Matcher) Expect() Expect { return m.expect }

// Outcome is what is known of an answer.
type Outcome uint8

// The outcomes. Wait means that more bytes may decide.
const (
	Wait Outcome = iota
	Met
	Missed
)

// Eval judges an answer of which data has come; final says that no more will.
// It never returns Wait for a final answer, and an outcome other than Wait stays
// the same with more data, but for a Regex that looks at the end of the text
// ($, \b): that sees the end of what has come so far.
func (m *Matcher) Eval(data []byte, final bool) Outcome {
	if m.expect.IsZero() {
		return Met
	}
	if len(data) == 0 {
		if final {
			return Missed
		}
		return Wait
	}
	found, open := m.find(data)
	switch {
	case !found && open && !final:
		return Wait
	case found != m.expect.Negate:
		return Met
	}
	return Missed
}

// find reports whether data has what m looks for and, if not, whether more data
// could.
func (m *Matcher) find(data []byte) (found, open bool) {
	switch {
	case m.re != nil:
		return m.re.Match(data), true
	case m.expect.Start:
		n := min(len(data), len(m.want))
		if !m.equal(data[:n], n) {
			return false, false
		}
		return n == len(m.want), true
	case m.mask == nil:
		return bytes.Contains(data, m.want), true
	}
	for len(data) >= len(m.want) {
		if m.equal(data, len(m.want)) {
			return true, true
		}
		data = data[1:]
	}
	return false, true
}

// equal reports whether the first n bytes of data are the first n wanted.
func (m *Matcher) equal(data []byte, n int) bool {
	if m.mask == nil {
		return bytes.Equal(data[:n], m.want[:n])
	}
	for i, b := range data[:n] {
		if b&m.mask[i] != m.want[i] {
			return false
		}
	}
	return true
}
