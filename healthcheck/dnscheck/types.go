package dnscheck

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// maxRcode is the largest response code of a reply to a query without EDNS.
const maxRcode = 1<<4 - 1

// ParseType returns the number of a record type that a query can ask for, given
// as its name in any case ("AAAA"), as "TYPE65" (RFC 3597) or as a number. An
// empty text is an error.
func ParseType(text string) (uint16, error) {
	name := strings.ToUpper(text)
	t, ok := dns.StringToType[name]
	if !ok {
		n, err := strconv.ParseUint(strings.TrimPrefix(name, "TYPE"), 10, 16)
		if err != nil {
			return 0, fmt.Errorf("unknown record type %q: a name such as A, AAAA or MX, or a number", text)
		}
		t = uint16(n)
	}
	return t, checkType(t)
}

// checkType refuses types that are no data of a name: those that describe a
// message, and those that stand for something else than one reply.
func checkType(t uint16) error {
	switch {
	case t == dns.TypeANY:
		return nil
	case t == dns.TypeNone, t == dns.TypeOPT, t >= 128 && t <= 255, t == dns.TypeReserved:
		// 128 to 255 are QTYPEs and meta types (RFC 6895, section 3.1).
		return fmt.Errorf("record type %s cannot be asked for", typeText(t))
	}
	return nil
}

// ParseRcode returns the number of a response code, given as its name in any case
// ("NXDOMAIN") or as a number from 0 to 15.
func ParseRcode(text string) (int, error) {
	if r, ok := dns.StringToRcode[strings.ToUpper(text)]; ok && r <= maxRcode {
		return r, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n > maxRcode {
		return 0, fmt.Errorf("unknown response code %q: a name such as NOERROR or NXDOMAIN, or a number up to %d", text, maxRcode)
	}
	return int(n), nil
}

func typeText(t uint16) string { return dns.Type(t).String() }

func rcodeText(r int) string {
	if name, ok := dns.RcodeToString[r]; ok {
		return name
	}
	return strconv.Itoa(r)
}

func rcodeTexts(codes []int) string {
	var names []string
	for _, r := range codes {
		names = append(names, rcodeText(r))
	}
	return strings.Join(names, " or ")
}
