package main

import (
	"io"
	"os"
	"strings"
)

// wantsColour reports whether w is a terminal that may be coloured
// (https://no-color.org).
func wantsColour(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w)
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// paintState colours a state such as "down 12s".
func (a *app) paintState(text string) string {
	if !a.colour {
		return text
	}
	state, _, _ := strings.Cut(text, " ")
	codes := map[string]string{"up": "32", "down": "31", "pending": "33", "draining": "33", "drained": "33", "disabled": "33"}
	code, ok := codes[state]
	if !ok {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// paintWarning colours a warning.
func (a *app) paintWarning(text string) string {
	if !a.colour {
		return text
	}
	return "\x1b[33m" + text + "\x1b[0m"
}
