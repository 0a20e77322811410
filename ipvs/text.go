package ipvs

import (
	"fmt"
	"strconv"
)

// enum is a table of the printed names of a small integer type.
type enum[T ~uint8 | ~uint16] struct {
	what  string
	names map[T]string
}

func (e enum[T]) string(v T) string {
	if s, ok := e.names[v]; ok {
		return s
	}
	return strconv.Itoa(int(v))
}

func (e enum[T]) parse(text []byte) (T, error) {
	for v, s := range e.names {
		if s == string(text) {
			return v, nil
		}
	}
	return 0, fmt.Errorf("unknown %s %q", e.what, text)
}

var (
	families  = enum[Family]{"address family", map[Family]string{IPv4: "ipv4", IPv6: "ipv6"}}
	protocols = enum[Protocol]{"protocol", map[Protocol]string{TCP: "TCP", UDP: "UDP", SCTP: "SCTP"}}
	forwards  = enum[ForwardMethod]{"forwarding method", map[ForwardMethod]string{
		Masq: "Masq", Local: "Local", Tunnel: "Tunnel", Route: "Route", Bypass: "Bypass"}}
	tunnels   = enum[TunnelType]{"tunnel type", map[TunnelType]string{TunnelIPIP: "ipip", TunnelGUE: "gue", TunnelGRE: "gre"}}
	checksums = enum[TunnelChecksum]{"tunnel checksum", map[TunnelChecksum]string{
		ChecksumNone: "none", ChecksumOn: "csum", ChecksumRemote: "remcsum"}}
	opKinds = enum[OpKind]{"operation", map[OpKind]string{
		OpAddService: "add service", OpUpdateService: "update service", OpDeleteService: "delete service",
		OpAddDestination: "add destination", OpUpdateDestination: "update destination", OpDeleteDestination: "delete destination"}}
)

// String prints "ipv4" or "ipv6".
func (f Family) String() string { return families.string(f) }

// MarshalText implements encoding.TextMarshaler with the form of String.
func (f Family) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText parses the form of String.
func (f *Family) UnmarshalText(b []byte) (err error) { *f, err = families.parse(b); return err }

// String prints "TCP", "UDP", "SCTP", or the number.
func (p Protocol) String() string { return protocols.string(p) }

// MarshalText implements encoding.TextMarshaler with the form of String.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the form of String.
func (p *Protocol) UnmarshalText(b []byte) (err error) { *p, err = protocols.parse(b); return err }

// String prints ipvsadm's word: "Masq", "Route", "Tunnel", "Local", "Bypass".
func (m ForwardMethod) String() string { return forwards.string(m) }

// MarshalText implements encoding.TextMarshaler with the form of String.
func (m ForwardMethod) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText parses the form of String.
func (m *ForwardMethod) UnmarshalText(b []byte) (err error) { *m, err = forwards.parse(b); return err }

// String prints "ipip", "gue" or "gre".
func (t TunnelType) String() string { return tunnels.string(t) }

// MarshalText implements encoding.TextMarshaler with the form of String.
func (t TunnelType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText parses the form of String.
func (t *TunnelType) UnmarshalText(b []byte) (err error) { *t, err = tunnels.parse(b); return err }

// String prints "none", "csum" or "remcsum".
func (c TunnelChecksum) String() string { return checksums.string(c) }

// MarshalText implements encoding.TextMarshaler with the form of String.
func (c TunnelChecksum) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText parses the form of String.
func (c *TunnelChecksum) UnmarshalText(b []byte) (err error) {
	*c, err = checksums.parse(b)
	return err
}

// String prints "add service", "update destination" and so on.
func (k OpKind) String() string { return opKinds.string(k) }

// SchedulerWords names the flags in f that the scheduler reads, in the order of
// their bits: "sh-fallback", "sh-port" and likewise for mh, "flag-1" to "flag-3"
// for others.
func (f ServiceFlags) SchedulerWords(s Scheduler) []string {
	names := [...]string{"flag-1", "flag-2", "flag-3"}
	if s == "sh" || s == "mh" {
		names[0], names[1] = string(s)+"-fallback", string(s)+"-port"
	}
	var words []string
	for i, flag := range [...]ServiceFlags{FlagSched1, FlagSched2, FlagSched3} {
		if f&flag != 0 {
			words = append(words, names[i])
		}
	}
	return words
}
