package dnscheck

import (
	"errors"
	"fmt"

	"github.com/miekg/dns"
)

// The limits of RFC 1035, section 2.3.4; that of the name counts every label's
// length byte and the root's.
const (
	maxLabel = 63
	maxName  = 255
)

// parseName returns the canonical text of a domain name: complete, with the
// escapes that names in messages are read with. It keeps the case.
func parseName(name string) (string, error) {
	if name == "" || name == "." {
		return ".", nil
	}
	label, total := 0, 1
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c > '~':
			return "", fmt.Errorf("name %q is not ASCII: write its xn-- form", name)
		case c <= ' ':
			return "", fmt.Errorf("name %q has a space or control character", name)
		case c == '.':
			if label == 0 {
				return "", fmt.Errorf("name %q has an empty label", name)
			}
			total += 1 + label
			label = 0
			continue
		case c == '\\':
			n, err := escape(name[i+1:])
			if err != nil {
				return "", fmt.Errorf("name %q: %w", name, err)
			}
			i += n
		}
		if label++; label > maxLabel {
			return "", fmt.Errorf("name %q has a label of more than %d bytes", name, maxLabel)
		}
	}
	if label > 0 {
		total += 1 + label
		name += "."
	}
	if total > maxName {
		return "", fmt.Errorf("name %q has %d bytes, more than %d", name, total, maxName)
	}
	// There and back, since a byte can be written in several ways.
	wire := make([]byte, maxName)
	if _, err := dns.PackDomainName(name, wire, 0, nil, false); err != nil {
		return "", fmt.Errorf("name %q: %w", name, err)
	}
	name, _, err := dns.UnpackDomainName(wire, 0)
	return name, err
}

// escape returns how many bytes after a backslash belong to it.
func escape(rest string) (int, error) {
	digit := func(i int) bool { return i < len(rest) && rest[i] >= '0' && rest[i] <= '9' }
	switch {
	case rest == "":
		return 0, errors.New("nothing after the backslash")
	case !digit(0):
		if rest[0] <= ' ' || rest[0] > '~' {
			return 0, errors.New("a backslash before a byte that is no visible character")
		}
		return 1, nil
	case !digit(1) || !digit(2) || rest[:3] > "255":
		return 0, errors.New("want three digits up to 255 after the backslash")
	}
	return 3, nil
}
