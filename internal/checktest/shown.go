package checktest

import (
	"strings"
	"testing"
	"unicode"
)

// Shown wants text, which has words of a target in it, to fit on a line: at most
// 600 bytes, all of them to be seen.
func Shown(t testing.TB, text string) {
	t.Helper()
	if len(text) > 600 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		t.Fatalf("not fit to be shown: %d bytes %.700q", len(text), text)
	}
}
