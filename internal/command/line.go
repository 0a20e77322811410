package command

import "strings"

// Line returns the first line of the output that is not blank, without white
// space around it, as the program wrote it.
func (r Result) Line() string {
	for line := range strings.Lines(string(r.Output)) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}
