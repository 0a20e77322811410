package hostile

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns what can be printed of s in at most limit bytes: everything else
// becomes a '?', and a cut is marked with "...".
func Text[T string | []byte](s T, limit int) string {
	var b strings.Builder
	// Not the whole of s, which may be long.
	text, cut := string(s[:min(len(s), limit)]), len(s) > limit
	if cut {
		text = text[:max(limit-len("..."), 0)]
		for i := 1; i <= min(len(text), utf8.UTFMax-1); i++ {
			// A character that the cut went through.
			if c := text[len(text)-i:]; utf8.RuneStart(c[0]) {
				if !utf8.FullRuneInString(c) {
					text = text[:len(text)-i]
				}
				break
			}
		}
	}
	for _, r := range text {
		// The replacement character is what invalid bytes read as, and longer
		// than they.
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			r = '?'
		}
		b.WriteRune(r)
	}
	if cut {
		b.WriteString("..."[:min(limit, 3)])
	}
	return b.String()
}
