package expect

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func compile(t *testing.T, e Expect) *Matcher {
	t.Helper()
	m, err := e.Compile()
	if err != nil {
		t.Fatalf("%v: %v", e, err)
	}
	return m
}

// outcomes evaluates every prefix of the answer, and then the whole as final.
func outcomes(m *Matcher, answer string) string {
	var s strings.Builder
	for i := range len(answer) + 1 {
		s.WriteByte("wM-"[m.Eval([]byte(answer[:i]), false)])
	}
	s.WriteByte(' ')
	s.WriteByte("wM-"[m.Eval([]byte(answer), true)])
	return s.String()
}

// TestEval has the outcome after each byte of an answer ("w" wait, "M" met, "-"
// missed), and at its end.
func TestEval(t *testing.T) {
	tests := []struct {
		expect       Expect
		answer, want string
	}{
		{Expect{}, "", "M M"},
		{Expect{}, "x", "MM M"},

		{Expect{Kind: Text, Value: "ab"}, "", "w -"},
		{Expect{Kind: Text, Value: "ab"}, "xab", "wwwM M"},
		{Expect{Kind: Text, Value: "ab"}, "aab.", "wwwMM M"},
		{Expect{Kind: Text, Value: "ab"}, "xyz", "wwww -"},
		{Expect{Kind: Text, Value: "\x00"}, "a\x00", "wwM M"},
		{Expect{Kind: Text, Value: "ab", Start: true}, "abc", "wwMM M"},
		{Expect{Kind: Text, Value: "ab", Start: true}, "aab", "ww-- -"},
		{Expect{Kind: Text, Value: "ab", Start: true}, "a", "ww -"},

		// An answer without a byte is none: it must not meet a negated one.
		{Expect{Kind: Text, Value: "ab", Negate: true}, "", "w -"},
		{Expect{Kind: Text, Value: "ab", Negate: true}, "xab", "www- -"},
		{Expect{Kind: Text, Value: "ab", Negate: true}, "xa", "www M"},
		{Expect{Kind: Text, Value: "ab", Negate: true, Start: true}, "xab", "wMMM M"},
		{Expect{Kind: Text, Value: "ab", Negate: true, Start: true}, "abx", "ww-- -"},
		{Expect{Kind: Text, Value: "ab", Negate: true, Start: true}, "a", "ww M"},

		{Expect{Kind: Hex, Value: "61 X2 xx"}, "aabcd", "wwwwMM M"},
		{Expect{Kind: Hex, Value: "6X"}, "0o", "wwM M"},
		{Expect{Kind: Hex, Value: "6X"}, "01", "www -"},
		{Expect{Kind: Hex, Value: "X16X", Start: true}, "qa1", "wwMM M"},
		{Expect{Kind: Hex, Value: "X16X", Start: true}, "q1a", "ww-- -"},
		{Expect{Kind: Hex, Value: "FF", Negate: true}, "a\xff", "ww- -"},
		{Expect{Kind: Hex, Value: "FF", Negate: true}, "ab", "www M"},
		{Expect{Kind: Hex, Value: "FF", Negate: true}, "", "w -"},

		{Expect{Kind: Regex, Value: "^a+b"}, "aab", "wwwM M"},
		{Expect{Kind: Regex, Value: "^a+b"}, "xab", "wwww -"},
		{Expect{Kind: Regex, Value: "(?i)role:MASTER"}, "role:master", "wwwwwwwwwwwM M"},
		{Expect{Kind: Regex, Value: "ab", Negate: true}, "xab", "www- -"},
		{Expect{Kind: Regex, Value: "ab", Negate: true}, "xa", "www M"},
		// It matches nothing at all, but that is no answer.
		{Expect{Kind: Regex, Value: "a*"}, "", "w -"},
		{Expect{Kind: Regex, Value: "a*"}, "b", "wM M"},
		// The end is that of what has come so far.
		{Expect{Kind: Regex, Value: "a$"}, "ab", "wMw -"},
	}
	for _, tt := range tests {
		if got := outcomes(compile(t, tt.expect), tt.answer); got != tt.want {
			t.Errorf("%v of %q: want %q, got %q", tt.expect, tt.answer, tt.want, got)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	tests := []struct {
		expect Expect
		want   string
	}{
		{Expect{Value: "x"}, "an expectation without a kind"},
		{Expect{Negate: true}, "an expectation without a kind"},
		{Expect{Kind: 9, Value: "x"}, "unknown kind of expectation 9"},
		{Expect{Kind: Text}, "expected text is empty, which any answer contains"},
		{Expect{Kind: Hex}, "expected hex is empty, which any answer contains"},
		{Expect{Kind: Regex}, "expected regex is empty, which any answer contains"},
		{Expect{Kind: Text, Value: strings.Repeat("x", MaxValue+1)}, "expected text has 4097 bytes, more than 4096"},
		{Expect{Kind: Hex, Value: " \t"}, "expected hex: hex has no digits"},
		{Expect{Kind: Hex, Value: "0g"}, "expected hex: hex at character 1: 'g' is no hexadecimal digit and not X"},
		{Expect{Kind: Hex, Value: "00 1"}, `expected hex: hex at character 4: "1" has one digit, want two for a byte`},
		{Expect{Kind: Hex, Value: "0 01"}, "expected hex: hex at character 1: ' ' is no hexadecimal digit and not X"},
		{Expect{Kind: Regex, Value: "x", Start: true}, "expected regex at the start: begin it with ^ instead"},
		{Expect{Kind: Regex, Value: "a(b"}, "expected regex: error parsing regexp: missing closing ): `a(b`"},
		{Expect{Kind: Regex, Value: "(?<=a)b"}, "expected regex: error parsing regexp: invalid named capture: `(?<=a)b`: the syntax of RE2 has no look-ahead nor look-behind"},
		{Expect{Kind: Regex, Value: "x(?<!a)b"}, "expected regex: error parsing regexp: invalid named capture: `(?<!a)b`: the syntax of RE2 has no look-ahead nor look-behind"},
		{Expect{Kind: Regex, Value: "a(?=b)"}, "expected regex: error parsing regexp: invalid or unsupported Perl syntax: `(?=`: the syntax of RE2 has no look-ahead nor look-behind"},
		{Expect{Kind: Regex, Value: "a(?!b)"}, "expected regex: error parsing regexp: invalid or unsupported Perl syntax: `(?!`: the syntax of RE2 has no look-ahead nor look-behind"},
		{Expect{Kind: Regex, Value: "(?>a)"}, "expected regex: error parsing regexp: invalid or unsupported Perl syntax: `(?>`"},
	}
	for _, tt := range tests {
		got := ""
		if err := tt.expect.Validate(); err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.expect, diff)
		}
	}
}

func TestKey(t *testing.T) {
	tests := []struct {
		expect         Expect
		want, wantText string
	}{
		{Expect{}, "", "nothing"},
		{Expect{Kind: Text, Value: "a b\r\n"}, `text "a b\r\n"`, `text "a b\r\n"`},
		{Expect{Kind: Text, Value: "a", Negate: true, Start: true}, `no text at the start "a"`, `no text at the start "a"`},
		// Written in another way, but the same.
		{Expect{Kind: Hex, Value: "0a Xf"}, `hex "0AXF"`, `hex "0a Xf"`},
		{Expect{Kind: Hex, Value: "0AxF "}, `hex "0AXF"`, `hex "0AxF "`},
		{Expect{Kind: Regex, Value: strings.Repeat("a", 61)}, `regex "` + strings.Repeat("a", 61) + `"`, `regex "` + strings.Repeat("a", 60) + `"…`},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.expect.Key()); diff != "" {
			t.Errorf("key of %+v (-want +got):\n%s", tt.expect, diff)
		}
		if diff := cmp.Diff(tt.wantText, tt.expect.String()); diff != "" {
			t.Errorf("text of %+v (-want +got):\n%s", tt.expect, diff)
		}
	}
}

// FuzzEval compares each kind with a plain way to say the same, however the
// answer is cut.
func FuzzEval(f *testing.F) {
	f.Add(uint8(Text), "ab", []byte("xab"), 2, false, false)
	f.Add(uint8(Hex), "6X 62", []byte("xab"), 1, true, false)
	f.Add(uint8(Hex), "XX0A", []byte("\r\n"), 0, false, true)
	f.Add(uint8(Regex), "^a+$", []byte("aa"), 1, true, false)
	f.Fuzz(func(t *testing.T, kind uint8, value string, answer []byte, cut int, negate, start bool) {
		e := Expect{Kind: Kind(kind % 5), Value: value, Negate: negate, Start: start}
		m, err := e.Compile()
		if (err == nil) != (m != nil) {
			t.Fatalf("%+v: got %v with error %v", e, m, err)
		}
		if err != nil || e.IsZero() {
			return
		}
		first := m.Eval(answer[:max(0, min(cut, len(answer)))], false)
		last := m.Eval(answer, true)
		if last == Wait {
			t.Fatalf("%+v of %q: still waits at the end", e, answer)
		}
		if first != Wait && first != last && e.Kind != Regex {
			t.Fatalf("%+v of %q: %d after %d bytes, then %d", e, answer, first, cut, last)
		}
		want := len(answer) > 0 && plain(t, e, string(answer)) != negate
		if got := last == Met; got != want {
			t.Fatalf("%+v of %q: want met %v, got %v", e, answer, want, got)
		}
	})
}

// plain says whether the answer has what e names, Negate apart.
func plain(t *testing.T, e Expect, answer string) bool {
	switch {
	case e.Kind == Regex:
		return regexp.MustCompile(e.Value).MatchString(answer)
	case e.Kind == Text && e.Start:
		return strings.HasPrefix(answer, e.Value)
	case e.Kind == Text:
		return strings.Contains(answer, e.Value)
	}
	digits := strings.ToUpper(strings.Join(strings.Fields(e.Value), ""))
	const all = "0123456789ABCDEF"
	for i := range len(answer) {
		if i > 0 && e.Start {
			return false
		}
		if len(answer)-i < len(digits)/2 {
			return false
		}
		same := true
		for j, d := range digits {
			nibble := answer[i+j/2] >> 4
			if j%2 == 1 {
				nibble = answer[i+j/2] & 15
			}
			same = same && (d == 'X' || byte(d) == all[nibble])
		}
		if same {
			return true
		}
	}
	return false
}
