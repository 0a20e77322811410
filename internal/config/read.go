package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

const (
	// maxSize is the size of the largest file that Parse reads, in bytes. A
	// real server takes about 75.
	maxSize = 16 << 20
	// maxMarks is how many characters that can start or end a value, a key or a
	// collection the library gets to see: it takes some 400 bytes for each. A
	// file in JSON has 8 a real server.
	maxMarks = 1 << 20
	// maxDepth is how deep collections may nest; the keys need 6.
	maxDepth = 32
)

// read turns the bytes of a file into its tree. Anchors, aliases, merge keys
// and tags are refused: no key needs them, and a few lines of them can stand
// for billions of values.
func read(file string, data []byte) (*node, Errors) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	plain, err := checkText(file, data)
	if err != nil {
		return nil, Errors{*err}
	}
	if plain {
		if root, ok := readPlain(string(data)); ok {
			return root, nil
		}
	}
	return readYAML(file, data)
}

// checkText refuses what is no text, with a better message and position than
// the YAML library has. It says whether the text is free of characters that YAML
// treats in a way of its own, such as further line breaks and byte order marks.
func checkText(file string, data []byte) (plain bool, err *Error) {
	if len(data) > maxSize {
		return false, &Error{file, 1, 1, fmt.Sprintf("the file is larger than %d MiB", maxSize>>20)}
	}
	plain = true
	for i := 0; i < len(data); {
		c := data[i]
		if c >= ' ' && c < 0x7f || c == '\n' || c == '\t' {
			i++
			continue
		}
		r, size := utf8.DecodeRune(data[i:])
		msg := ""
		switch {
		case r == utf8.RuneError && size == 1:
			msg = fmt.Sprintf("byte 0x%02x is not UTF-8: save the file as UTF-8", c)
		case r < ' ' && r != '\r' || r == 0x7f:
			msg = fmt.Sprintf("control character 0x%02x", c)
		default:
			if r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0xd800 {
				plain = false
			}
			i += size
			continue
		}
		line := 1 + bytes.Count(data[:i], []byte("\n"))
		start := bytes.LastIndexByte(data[:i], '\n') + 1
		return false, &Error{file, line, 1 + utf8.RuneCount(data[start:i]), msg}
	}
	return plain, nil
}

// readYAML reads the whole of YAML through the library.
func readYAML(file string, data []byte) (*node, Errors) {
	if marks(data) > maxMarks {
		return nil, Errors{{file, 1, 1, fmt.Sprintf("too many values for YAML beyond plain blocks: more than %d of the characters -?:,[]{} and line ends", maxMarks)}}
	}
	l, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, Errors{{file, 1, 1, err.Error()}}
	}
	var doc yaml.Node
	switch err := l.Load(&doc); {
	case errors.Is(err, io.EOF):
		return nil, Errors{{file, 1, 1, "the file is empty"}}
	case err != nil:
		return nil, Errors{syntaxError(file, data, err)}
	case doc.Kind != yaml.DocumentNode || len(doc.Content) != 1:
		return nil, Errors{{file, 1, 1, "the file is empty"}}
	}
	var second yaml.Node
	switch err := l.Load(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return nil, Errors{syntaxError(file, data, err)}
	default:
		line, col := position(&second)
		return nil, Errors{{file, line, col, "a second document starts here: the file must be one"}}
	}
	c := converter{file: file}
	root := c.convert(doc.Content[0], 1)
	if len(c.errs) > 0 {
		return nil, c.errs.sorted()
	}
	return root, nil
}

// marks counts the characters that can start or end something in YAML.
func marks(data []byte) int {
	n := 0
	for _, c := range data {
		switch c {
		case '-', '?', ':', ',', '[', ']', '{', '}', '\n', '\r':
			n++
		}
	}
	return n
}

// syntaxError gives an error of the library its position in words of ours.
func syntaxError(file string, data []byte, err error) Error {
	var le *yaml.LoadError
	if !errors.As(err, &le) {
		return Error{file, 1, 1, "not YAML: " + err.Error()}
	}
	line, col := max(le.Mark.Line, 1), max(le.Mark.Column, 1)
	msg := le.Message
	if i := le.Mark.Index; i >= 0 && i < len(data) && data[i] == '\t' {
		msg = "found a tab: YAML is indented with spaces"
	}
	if unquotedIPv6.Match(lineOf(data, line)) {
		msg = "an IPv6 address with a port needs quotes, as YAML takes the bracket for a list"
		return Error{file, line, col, msg}
	}
	if le.ContextMsg != "" && le.ContextMark.Line > 0 && le.ContextMark.Line != le.Mark.Line {
		msg += fmt.Sprintf(" (%s that starts at line %d)", le.ContextMsg, le.ContextMark.Line)
	}
	return Error{file, line, col, "not YAML: " + strings.TrimSpace(msg)}
}

// unquotedIPv6 is what YAML refuses most surprisingly: "[2001:db8::10]:80"
// without the quotes.
var unquotedIPv6 = regexp.MustCompile(`[:,-] +\[[0-9a-fA-F:.]+\]:[0-9]`)

// lineOf returns a line by its number, counted from 1.
func lineOf(data []byte, number int) []byte {
	for ; number > 1; number-- {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			return nil
		}
		data = data[i+1:]
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return line
}

func position(n *yaml.Node) (line, col int) { return max(n.Line, 1), max(n.Column, 1) }

// converter turns the library's nodes into ours.
type converter struct {
	file string
	errs Errors
	nodes
}

func (c *converter) refuse(n *yaml.Node, msg string) {
	if len(c.errs) < maxKept {
		line, col := position(n)
		c.errs = append(c.errs, Error{c.file, line, col, msg})
	}
}

func (c *converter) convert(from *yaml.Node, depth int) *node {
	line, col := position(from)
	n := c.make(scalar, line, col, from.Value)
	switch {
	case depth > maxDepth:
		c.refuse(from, fmt.Sprintf("nested deeper than %d levels", maxDepth))
		return n
	case from.Kind == yaml.AliasNode:
		c.refuse(from, "aliases are not supported: write the value out")
		return n
	case from.Anchor != "":
		c.refuse(from, "anchors are not supported: use defaults and checks for what repeats")
	case from.Style&yaml.TaggedStyle != 0:
		c.refuse(from, "tags are not supported")
	}
	switch from.Kind {
	case yaml.MappingNode:
		n.kind = mapping
	case yaml.SequenceNode:
		n.kind = sequence
	default:
		const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
		n.quoted = from.Style&quoted != 0
		return n
	}
	for _, child := range from.Content {
		n.add(c.convert(child, depth+1))
	}
	return n
}
