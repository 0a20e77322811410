package hostile

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{
		{"", 10, ""},
		{"plain", 10, "plain"},
		{"ten bytes.", 10, "ten bytes."},
		{"eleven byte", 10, "eleven ..."},
		{"a\r\nb\x1b[31m\x00", 20, "a??b?[31m?"},
		{"caf\xe9", 10, "caf?"},
		{"ü\u202e\u2028", 10, "ü??"},
		{"aaaaaaüüü", 10, "aaaaaa..."},
		{"abc", 2, ".."},
		{"abc", 0, ""},
	} {
		if got := Text(tt.in, tt.limit); got != tt.want {
			t.Errorf("Text(%q, %d): want %q, got %q", tt.in, tt.limit, tt.want, got)
		}
		if got := Text([]byte(tt.in), tt.limit); got != tt.want {
			t.Errorf("Text([]byte(%q), %d): want %q, got %q", tt.in, tt.limit, tt.want, got)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\r\nb", 3)
	f.Add("\xff\xfe\U0001f600", 6)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 0 || limit > 1<<16 {
			return
		}
		got := Text(s, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("Text(%q, %d) = %q", s, limit, got)
		}
	})
}
