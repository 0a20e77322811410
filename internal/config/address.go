package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// noPort stands for the port of an address that has none.
const noPort = -1

// parseAddrPort reads "10.0.0.2:80", "[2001:db8::2]:80" and both without the
// port. An empty problem means success.
func parseAddrPort(s string) (a netip.Addr, port int, problem string) {
	host, portText, hasPort := s, "", false
	switch colons := strings.Count(s, ":"); {
	case strings.HasPrefix(s, "["):
		var rest string
		var closed bool
		host, rest, closed = strings.Cut(s[1:], "]")
		if !closed {
			return a, 0, "the closing bracket is missing"
		}
		if rest != "" {
			portText, hasPort = strings.CutPrefix(rest, ":")
			if !hasPort {
				return a, 0, "want a colon and the port after the bracket"
			}
		}
		if !strings.Contains(host, ":") {
			return a, 0, "brackets are for IPv6 addresses"
		}
	case colons == 1:
		host, portText, hasPort = strings.Cut(s, ":")
	case colons > 1:
		return a, 0, bracketHint(s)
	}
	a, problem = parseAddr(host)
	if problem != "" {
		return a, 0, problem
	}
	port = noPort
	if hasPort {
		p, err := strconv.ParseUint(portText, 10, 16)
		if err != nil || len(portText) > 1 && portText[0] == '0' {
			return a, 0, fmt.Sprintf("want a port of 0 to 65535, got %q", shorten(portText))
		}
		port = int(p)
	}
	return a, port, ""
}

// bracketHint says what an IPv6 address without brackets could mean.
func bracketHint(s string) string {
	if _, problem := parseAddr(s); problem != "" && strings.Contains(problem, "not an IP") {
		return "not an address and a port"
	}
	whole := "[" + s + "]:PORT"
	i := strings.LastIndexByte(s, ':')
	if _, err := netip.ParseAddr(s[:i]); err != nil {
		return "an IPv6 address needs brackets: " + whole
	}
	return fmt.Sprintf("an IPv6 address needs brackets, or its port is ambiguous: [%s]:%s or %s", s[:i], s[i+1:], whole)
}

// parseAddr reads an IP address as every other program would print it.
func parseAddr(s string) (a netip.Addr, problem string) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil && strings.Contains(s, "/"):
		return a, "want one address, not a network"
	case err != nil && isHostName(s):
		return a, "host names are not supported, as one can stand for other addresses tomorrow: write the IP address"
	case err != nil, strings.ContainsFunc(a.Zone(), unicode.IsControl):
		return a, "not an IP address"
	case a.Zone() != "":
		return a, "IPVS knows no zones: leave out %" + shorten(a.Zone())
	case a.Is4In6():
		return a, "this is an IPv4 address in IPv6 form: write " + a.Unmap().String()
	}
	return a, ""
}

func isHostName(s string) bool {
	letter := false
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_':
			letter = true
		case c >= '0' && c <= '9' || c == '-' || c == '.':
		default:
			return false
		}
	}
	return letter
}

// notUnicast says why the kernel would never see or would refuse an address.
func notUnicast(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return "the unspecified address is no host's"
	case a.Is4() && a.As4()[0] == 0:
		return "addresses of 0.0.0.0/8 are no host's"
	case a.IsMulticast():
		return "multicast addresses are not balanced"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast address is no host's"
	}
	return ""
}
