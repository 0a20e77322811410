package smtpcheck

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lbd-project/lbd/healthcheck"
)

const (
	// maxLine is the longest line of a reply, with its end; RFC 5321, section
	// 4.5.3.1.5, allows 512.
	maxLine = 2048
	// maxLines is how many lines a reply may have.
	maxLines = 128
	// shown is how many bytes of what is no reply an error has.
	shown = 100
)

// reply is a server's answer to a command.
type reply struct {
	code int
	// lines are the texts of its lines, at least one.
	lines []string
}

// String prints the code and the last line, where servers say most.
func (r reply) String() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", r.code, healthcheck.Printable(r.lines[len(r.lines)-1])))
}

// offers reports whether the reply to EHLO has the keyword.
func (r reply) offers(keyword string) bool {
	for _, l := range r.lines[1:] {
		if word, _, _ := strings.Cut(l, " "); strings.EqualFold(word, keyword) {
			return true
		}
	}
	return false
}

// readReply reads a reply of one or more lines from br, whose buffer is maxLine
// long. Every error but io.EOF for no byte at all says what is wrong with it.
func readReply(br *bufio.Reader) (reply, error) {
	var r reply
	for {
		line, err := br.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return reply{}, fmt.Errorf("a line of the reply is longer than %d bytes: %q", maxLine, show(line))
		case errors.Is(err, io.EOF) && len(line)+len(r.lines) > 0:
			return reply{}, fmt.Errorf("the reply ends in the middle: %w", io.ErrUnexpectedEOF)
		case err != nil:
			return reply{}, err
		}
		line = bytes.TrimSuffix(line[:len(line)-1], []byte("\r"))
		code, text, last, ok := parseLine(line)
		switch {
		case !ok:
			return reply{}, fmt.Errorf("not a reply of SMTP: %q", show(line))
		case len(r.lines) > 0 && code != r.code:
			return reply{}, fmt.Errorf("a reply with the codes %d and %d", r.code, code)
		case len(r.lines) == maxLines:
			return reply{}, fmt.Errorf("a reply of more than %d lines", maxLines)
		}
		r.code, r.lines = code, append(r.lines, text)
		if last {
			return r, nil
		}
	}
}

// parseLine takes a line apart: three digits, a hyphen where more lines follow or
// a space, and a text, which some servers leave out with the space.
func parseLine(line []byte) (code int, text string, last, ok bool) {
	if len(line) < 3 || line[0] < '2' || line[0] > '5' {
		return 0, "", false, false
	}
	for _, c := range line[:3] {
		if c < '0' || c > '9' {
			return 0, "", false, false
		}
		code = code*10 + int(c-'0')
	}
	if len(line) == 3 {
		return code, "", true, true
	}
	if line[3] != ' ' && line[3] != '-' {
		return 0, "", false, false
	}
	return code, string(line[4:]), line[3] == ' ', true
}

// show returns what can be printed of the begin of b.
func show(b []byte) string {
	if len(b) > shown {
		return healthcheck.Printable(string(b[:shown])) + "…"
	}
	return healthcheck.Printable(string(b))
}
