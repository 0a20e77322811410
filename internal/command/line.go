package command

import (
	"strings"
	"unicode"
)

// maxLine is the length of a Result.Line in bytes.
const maxLine = 200

// Line returns the first line of the output that is not blank, for people: at
// most 200 bytes, what is not printable replaced by "?".
func (r Result) Line() string {
	for line := range strings.Lines(string(r.Output)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		line = strings.Map(func(c rune) rune {
			if c == unicode.ReplacementChar || !unicode.IsPrint(c) {
				return '?'
			}
			return c
		}, line)
		if len(line) <= maxLine {
			return line
		}
		return strings.ToValidUTF8(line[:maxLine], "")
	}
	return ""
}
