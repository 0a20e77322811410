package ipvs

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ParseServiceKey parses the form of ServiceKey.String, and nothing else: what
// it returns prints as s again and passes Validate.
func ParseServiceKey(s string) (ServiceKey, error) {
	k, err := parseServiceKey(s)
	if err == nil {
		err = k.Validate()
	}
	if err == nil && k.String() != s {
		err = fmt.Errorf("want %q", k)
	}
	if err != nil {
		return ServiceKey{}, fmt.Errorf("service key %q: %w", s, err)
	}
	return k, nil
}

func parseServiceKey(s string) (ServiceKey, error) {
	kind, rest, _ := strings.Cut(s, " ")
	if kind == "FWM" {
		family := IPv4
		if mark, ok := strings.CutSuffix(rest, " IPv6"); ok {
			family, rest = IPv6, mark
		}
		mark, err := strconv.ParseUint(rest, 10, 32)
		if err != nil {
			return ServiceKey{}, fmt.Errorf("firewall mark %q is not a number of 32 bits", rest)
		}
		return MarkService(family, uint32(mark)), nil
	}
	var p Protocol
	if err := p.UnmarshalText([]byte(kind)); err != nil {
		return ServiceKey{}, err
	}
	address, err := netip.ParseAddrPort(rest)
	if err != nil {
		return ServiceKey{}, err
	}
	return AddrService(p, address), nil
}
