package main

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// table aligns rows of cells in columns. What it prints is safe for a terminal,
// whatever a real server answered to a check.
type table struct {
	// indent goes before every row.
	indent string
	// right marks the columns that are aligned to the right.
	right map[int]bool
	// paint colours a cell by its text, after it was aligned; nil for none.
	paint func(column int, text string) string
	rows  [][]string
	// widths are of the columns, at least; they grow.
	widths []int
}

// row adds a row.
func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = printable(c)
	}
	t.rows = append(t.rows, cells)
}

// line adds a row that takes part in no column.
func (t *table) line(text string) { t.rows = append(t.rows, []string{printable(text)}) }

// write prints the rows and forgets them. Those that follow get columns of the
// same widths where they fit, so that a long table can be printed in parts.
func (t *table) write(w io.Writer) {
	for _, row := range t.rows {
		if len(row) == 1 {
			continue
		}
		for i, c := range row {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		b.Reset()
		if len(row) == 1 {
			b.WriteString(row[0])
		} else {
			b.WriteString(t.indent)
		}
		for i, c := range row {
			if len(row) == 1 {
				break
			}
			pad := strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(c))
			text := c
			if t.paint != nil {
				text = t.paint(i, c)
			}
			switch {
			case t.right[i]:
				text = pad + text
			case i < len(row)-1:
				text += pad
			}
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(text)
		}
		io.WriteString(w, strings.TrimRight(b.String(), " ")+"\n")
	}
	t.rows = t.rows[:0]
}

// printable replaces what could steer a terminal or break a line.
func printable(s string) string {
	clean := func(r rune) bool { return unicode.IsGraphic(r) && r != utf8.RuneError }
	if strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if clean(r) {
			b.WriteRune(r)
		} else {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}
