package config

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// maxShown is how many errors are printed.
	maxShown = 20
	// maxKept is how many errors Parse collects before it gives up, so that a
	// hostile file cannot make it fill the memory.
	maxKept = 1000
)

// Error is one thing wrong with a file.
type Error struct {
	// File is the name given to Parse.
	File string
	// Line and Col start at 1; Col counts characters.
	Line, Col int
	// Msg says what is wrong and what would be right.
	Msg string
}

// Error prints "lbd.yaml:3:5: message".
func (e Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Msg)
}

// Errors are all that is wrong with a file, in the order of the file. It is the
// type of every error of Parse and never empty then.
type Errors []Error

// Error prints one error a line, at most 20 of them.
func (e Errors) Error() string { return strings.Join(e.Lines(), "\n") }

// Lines returns the lines of Error: at most 20 errors and then, if there are
// more, "and N more".
func (e Errors) Lines() []string {
	var lines []string
	for i, err := range e {
		if i == maxShown {
			lines = append(lines, fmt.Sprintf("and %d more", len(e)-maxShown))
			break
		}
		lines = append(lines, err.Error())
	}
	return lines
}

// all returns a line for every error.
func (e Errors) all() []string {
	var lines []string
	for _, err := range e {
		lines = append(lines, err.Error())
	}
	return lines
}

// sorted returns the errors in the order of the file.
func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Col - b.Col
	})
	return e
}
