package healthcheck

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText is the most bytes of what Printable returns.
const maxText = 200

// Printable returns what can be shown of text that comes from a target: one
// line, valid UTF-8, runs of white space as one space and without other control
// characters, cut to 200 bytes with "…" at the end. Printable(Printable(s)) is
// Printable(s).
func Printable(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			space = true
			continue
		case r == utf8.RuneError || !unicode.IsGraphic(r):
			r = '?'
		}
		if space && b.Len() > 0 {
			b.WriteByte(' ')
		}
		space = false
		b.WriteRune(r)
		if b.Len() > maxText {
			return cut(b.String())
		}
	}
	return b.String()
}

// plain reports whether Printable has nothing to do, the common case.
func plain(s string) bool {
	if len(s) > maxText {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c < ' ' || c > '~' || c == ' ' && (i == 0 || i == len(s)-1 || s[i-1] == ' ') {
			return false
		}
	}
	return true
}

// cut shortens s, which is too long, between two characters.
func cut(s string) string {
	const mark = "…"
	end := maxText - len(mark)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.TrimRight(s[:end], " ") + mark
}
