package api

import (
	"errors"
	"net/netip"
)

// Endpoint matches addresses with ports. The zero value matches all.
type Endpoint struct {
	prefix netip.Prefix
	port   uint16
	// ported says that the port matters.
	ported bool
}

// String prints what UnmarshalText parses; nothing for the zero value.
func (e Endpoint) String() string {
	switch {
	case !e.prefix.IsValid():
		return ""
	case e.ported:
		return netip.AddrPortFrom(e.prefix.Addr(), e.port).String()
	case e.prefix.IsSingleIP():
		return e.prefix.Addr().String()
	}
	return e.prefix.String()
}

// MarshalText implements encoding.TextMarshaler with the form of String.
func (e Endpoint) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText parses an address, an address with a port, or a prefix, whose
// host bits do not matter.
func (e *Endpoint) UnmarshalText(b []byte) error {
	text := string(b)
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return e.set(ap.Addr(), ap.Addr().BitLen(), ap.Port(), true)
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return e.set(a, a.BitLen(), 0, false)
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return e.set(p.Addr(), p.Bits(), 0, false)
	}
	return errEndpoint
}

var errEndpoint = errors.New("want an address, an address with a port or a prefix: 192.0.2.1, [2001:db8::1]:80, 192.0.2.0/24")

func (e *Endpoint) set(a netip.Addr, bits int, port uint16, ported bool) error {
	if a.Is4In6() && bits >= 96 {
		a, bits = a.Unmap(), bits-96
	}
	p, err := a.Prefix(bits)
	if err != nil || a.Zone() != "" {
		return errEndpoint
	}
	*e = Endpoint{p, port, ported}
	return nil
}

func (e Endpoint) match(ap netip.AddrPort) bool {
	return !e.prefix.IsValid() || e.prefix.Contains(ap.Addr()) && (!e.ported || e.port == ap.Port())
}
