package config

import (
	"strings"
	"unicode/utf8"
)

// readPlain reads the plain part of YAML in which nearly every configuration is
// written: block mappings and sequences, one-line scalars, one-line flow
// collections, comments. It is some twenty times faster than the library, which
// would bound the start of a daemon with many real servers. Where the text goes
// beyond, or is wrong, it gives up and the library decides: it never makes an
// error of its own, and what it accepts it reads exactly as the library does
// (FuzzPlain compares them). The text has passed checkText as plain.
func readPlain(text string) (*node, bool) {
	r := plainReader{text: text}
	if !r.nextLine() || r.eof {
		return nil, false
	}
	root, ok := r.mapping(r.indent, 1)
	return root, ok && r.eof
}

// plainReader stands before a line that has content: text[pos:end], indented by
// indent spaces.
type plainReader struct {
	text      string
	pos, end  int
	line      int
	lineStart int
	indent    int
	next      int // where the line after this one starts
	eof       bool
	nodes
}

// nextLine goes to the next line that is neither blank nor a comment. It is
// false where a tab makes the indentation unclear.
func (r *plainReader) nextLine() bool {
	for r.next < len(r.text) {
		r.line++
		r.lineStart = r.next
		end := strings.IndexByte(r.text[r.next:], '\n')
		if end < 0 {
			end = len(r.text)
			r.next = end
		} else {
			end += r.next
			r.next = end + 1
		}
		pos := r.lineStart
		for pos < end && r.text[pos] == ' ' {
			pos++
		}
		if pos == end || r.text[pos] == '#' {
			continue
		}
		r.pos, r.end, r.indent = pos, end, pos-r.lineStart
		return r.text[pos] != '\t'
	}
	r.pos, r.end, r.indent, r.eof = len(r.text), len(r.text), -1, true
	return true
}

func (r *plainReader) col(pos int) int { return pos - r.lineStart + 1 }

// isDash says whether an entry of a sequence starts at pos.
func (r *plainReader) isDash() bool {
	return !r.eof && r.text[r.pos] == '-' && (r.pos+1 == r.end || r.text[r.pos+1] == ' ')
}

// keyEnd returns where the colon of a key at pos is, or -1.
func (r *plainReader) keyEnd(pos int) int {
	i := pos
	for i < r.end && isKeyChar(r.text[i]) {
		i++
	}
	if i == pos || i-pos > 128 || r.text[pos] == '-' || r.text[pos] == '.' {
		return -1
	}
	if i == r.end || r.text[i] != ':' || i+1 < r.end && r.text[i+1] != ' ' {
		return -1
	}
	return i
}

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func isKeyChar(c byte) bool { return isAlnum(c) || c == '_' || c == '-' || c == '.' }

// mapping reads the block mapping whose first key is at pos, in column indent.
func (r *plainReader) mapping(indent, depth int) (*node, bool) {
	if depth > maxDepth {
		return nil, false
	}
	m := r.make(mapping, r.line, r.col(r.pos), "")
	for {
		colon := r.keyEnd(r.pos)
		if colon < 0 {
			return nil, false
		}
		m.add(r.make(scalar, r.line, r.col(r.pos), r.text[r.pos:colon]))
		value, ok := r.mappingValue(colon, indent, depth)
		if !ok {
			return nil, false
		}
		m.add(value)
		if r.indent < indent {
			return m, true
		}
		if r.indent > indent {
			return nil, false
		}
	}
}

// mappingValue reads what follows the colon of a key, and goes to the line after
// it.
func (r *plainReader) mappingValue(colon, indent, depth int) (*node, bool) {
	pos := r.skipBlank(colon + 1)
	if pos < r.end {
		return r.inline(pos, depth)
	}
	line, col := r.line, r.col(colon+1)
	if !r.nextLine() {
		return nil, false
	}
	switch {
	case r.isDash() && r.indent >= indent:
		return r.sequence(r.indent, depth+1)
	case r.indent > indent:
		return r.mapping(r.indent, depth+1)
	default:
		return r.make(scalar, line, col, ""), true
	}
}

// sequence reads the block sequence whose first dash is at pos.
func (r *plainReader) sequence(indent, depth int) (*node, bool) {
	if depth > maxDepth {
		return nil, false
	}
	s := r.make(sequence, r.line, r.col(r.pos), "")
	for {
		pos := r.skipBlank(r.pos + 1)
		if pos == r.end {
			return nil, false
		}
		var item *node
		var ok bool
		if r.keyEnd(pos) >= 0 {
			r.pos = pos
			item, ok = r.mapping(r.col(pos)-1, depth+1)
		} else {
			item, ok = r.inline(pos, depth)
		}
		if !ok {
			return nil, false
		}
		s.add(item)
		if r.indent > indent {
			return nil, false
		}
		if r.indent < indent || !r.isDash() {
			return s, true
		}
	}
}

// skipBlank returns where the content after pos starts; the end of the line if
// there is but a comment.
func (r *plainReader) skipBlank(pos int) int {
	start := pos
	for pos < r.end && r.text[pos] == ' ' {
		pos++
	}
	if pos < r.end && r.text[pos] == '#' && pos > start {
		return r.end
	}
	return pos
}

// inline reads a value that ends with its line, and goes to the next line. The
// caller refuses one that is indented further, as it may be part of the value.
func (r *plainReader) inline(pos, depth int) (*node, bool) {
	var n *node
	var ok bool
	switch c := r.text[pos]; {
	case c == '{' || c == '[':
		n, pos, ok = r.flow(pos, depth+1)
	case c == '"' || c == '\'':
		n, pos, ok = r.quoted(pos)
	case r.startsPlain(pos):
		n, pos, ok = r.plain(pos)
	}
	if !ok || r.skipBlank(pos) != r.end {
		return nil, false
	}
	return n, r.nextLine()
}

// startsPlain says whether a plain scalar starts at pos for certain.
func (r *plainReader) startsPlain(pos int) bool {
	c := r.text[pos]
	if c == '-' {
		return pos+1 < r.end && isAlnum(r.text[pos+1])
	}
	return isAlnum(c) || c == '/' || c == '_'
}

// plain reads a plain scalar outside flow collections.
func (r *plainReader) plain(pos int) (*node, int, bool) {
	end := pos // after the last character that is no space
	for i := pos; i < r.end; i++ {
		switch c := r.text[i]; {
		case c == ' ':
			continue
		case c == '\t', c >= utf8.RuneSelf:
			return nil, 0, false
		case c == '#' && r.text[i-1] == ' ':
			return r.make(scalar, r.line, r.col(pos), r.text[pos:end]), end, true
		case c == ':' && (i+1 == r.end || r.text[i+1] == ' ' || r.text[i+1] == '\t'):
			return nil, 0, false
		}
		end = i + 1
	}
	return r.make(scalar, r.line, r.col(pos), r.text[pos:end]), end, true
}

// quoted reads a quoted scalar without escapes.
func (r *plainReader) quoted(pos int) (*node, int, bool) {
	quote := r.text[pos]
	for i := pos + 1; i < r.end; i++ {
		switch c := r.text[i]; {
		case c == '\\' && quote == '"', c == '\t', c >= utf8.RuneSelf:
			return nil, 0, false
		case c == quote:
			if i+1 < r.end && r.text[i+1] != ' ' && r.text[i+1] != ',' && r.text[i+1] != ']' && r.text[i+1] != '}' {
				return nil, 0, false
			}
			n := r.make(scalar, r.line, r.col(pos), r.text[pos+1:i])
			n.quoted = true
			return n, i + 1, true
		}
	}
	return nil, 0, false
}

// flow reads a flow mapping or sequence and returns where it ends.
func (r *plainReader) flow(pos, depth int) (*node, int, bool) {
	if depth > maxDepth {
		return nil, 0, false
	}
	n := r.make(sequence, r.line, r.col(pos), "")
	end := byte(']')
	if r.text[pos] == '{' {
		n.kind, end = mapping, '}'
	}
	pos = r.skipBlank(pos + 1)
	if pos < r.end && r.text[pos] == end {
		return n, pos + 1, true
	}
	for {
		if n.kind == mapping {
			colon := r.keyEnd(pos)
			if colon < 0 {
				return nil, 0, false
			}
			n.add(r.make(scalar, r.line, r.col(pos), r.text[pos:colon]))
			pos = r.skipBlank(colon + 1)
		}
		value, after, ok := r.flowValue(pos, depth)
		if !ok {
			return nil, 0, false
		}
		n.add(value)
		pos = r.skipBlank(after)
		switch {
		case pos == r.end:
			return nil, 0, false
		case r.text[pos] == end:
			return n, pos + 1, true
		case r.text[pos] != ',':
			return nil, 0, false
		}
		pos = r.skipBlank(pos + 1)
	}
}

// flowValue reads a value in a flow collection.
func (r *plainReader) flowValue(pos, depth int) (*node, int, bool) {
	if pos >= r.end {
		return nil, 0, false
	}
	switch c := r.text[pos]; {
	case c == '{' || c == '[':
		return r.flow(pos, depth+1)
	case c == '"' || c == '\'':
		return r.quoted(pos)
	case !r.startsPlain(pos):
		return nil, 0, false
	}
	i := pos
	for i < r.end {
		c := r.text[i]
		if c == ':' {
			if i+1 == r.end || !isAlnum(r.text[i+1]) {
				return nil, 0, false
			}
		} else if !isKeyChar(c) && c != '/' {
			break
		}
		i++
	}
	return r.make(scalar, r.line, r.col(pos), r.text[pos:i]), i, true
}
