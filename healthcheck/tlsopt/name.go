package tlsopt

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// NameOf returns the host name or address in the host of a URL, such as
// "a.example", "a.example:8443" or "[2001:db8::1]:8443": what a server's
// certificate must be for.
func NameOf(host string) (string, error) {
	name, port, hasPort := strings.Cut(host, ":")
	good := name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r != '.' && !isLabel(r) })
	if inside, ok := strings.CutPrefix(host, "["); ok {
		var rest string
		var closed bool
		name, rest, closed = strings.Cut(inside, "]")
		addr, err := netip.ParseAddr(name)
		good = closed && err == nil && addr.Is6() && addr.Zone() == "" && (rest == "" || rest[0] == ':')
		if hasPort = rest != ""; hasPort {
			port = rest[1:]
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); hasPort && (err != nil || n == 0) || !good {
		return "", fmt.Errorf("host %q is neither a name nor an address (in brackets, if of IPv6), with or without a port", host)
	}
	return name, nil
}

// isLabel reports whether r may be in a label of a host name. The underscore may
// not (RFC 1123, section 2.1), but is.
func isLabel(r rune) bool {
	return r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}
