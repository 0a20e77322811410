package ipvs

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
)

// countsTable is /proc/net/ip_vs, parsed: three lines of heading, then a line
// for each service, each followed by the lines of its real servers
// (ip_vs_info_seq_show in net/netfilter/ipvs/ip_vs_ctl.c):
//
//	IP Virtual Server version 1.2.1 (size=4096)
//	Prot LocalAddress:Port Scheduler Flags
//	  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
//	TCP  C000020A:0050 wlc persistent 300 FFFFFFFF
//	  -> 0A000002:0050      Masq    1      0          0
//	UDP  [2001:0db8:0000:0000:0000:0000:0000:000a]:0035 rr
//	  -> [2001:0db8:0000:0000:0000:0000:0000:0002]:0035      Route   1      0          0
//	FWM  00000007 wlc
type countsTable struct {
	services []countsService
	counts   []DestinationCounts
}

// countsService is a service and which of the counts are its own. The family of
// a firewall mark service is zero until it is known.
type countsService struct {
	key      ServiceKey
	from, to int
}

const (
	headingVersion = "IP Virtual Server version "
	headingService = "Prot LocalAddress:Port Scheduler Flags"
	headingServer  = "  -> RemoteAddress:Port Forward Weight ActiveConn InActConn"
	serverPrefix   = "  -> "
)

// parse parses the text of the file. An error names the line.
func (t *countsTable) parse(text []byte) error {
	for n := 1; len(text) > 0; n++ {
		line, rest, whole := bytes.Cut(text, []byte{'\n'})
		text = rest
		err := errCut
		if whole {
			err = t.line(n, line)
		}
		if err != nil {
			const most = 80
			return fmt.Errorf("/proc/net/ip_vs line %d %q: %w", n, line[:min(most, len(line))], err)
		}
	}
	t.endService()
	return nil
}

var (
	errCut     = errors.New("line is cut short")
	errHeading = errors.New("unknown heading")
)

func (t *countsTable) line(n int, line []byte) error {
	switch {
	case n == 1:
		if !bytes.HasPrefix(line, []byte(headingVersion)) {
			return errHeading
		}
	case n == 2:
		if string(line) != headingService {
			return errHeading
		}
	case n == 3:
		if string(line) != headingServer {
			return errHeading
		}
	case bytes.HasPrefix(line, []byte(serverPrefix)):
		return t.server(line[len(serverPrefix):])
	default:
		return t.service(line)
	}
	return nil
}

func (t *countsTable) service(line []byte) error {
	t.endService()
	proto, rest := field(line)
	where, rest := field(rest)
	if scheduler, _ := field(rest); len(scheduler) == 0 {
		return errors.New("no scheduler")
	}
	s := countsService{from: len(t.counts), to: -1}
	if string(proto) == "FWM" {
		mark, ok := parseHex(where, 8)
		if !ok || mark == 0 {
			return errors.New("no firewall mark")
		}
		s.key.FWMark = mark
	} else {
		p, err := parseProtocol(proto)
		if err != nil {
			return err
		}
		ap, err := parseHexAddrPort(where)
		if err != nil {
			return err
		}
		s.key = AddrService(p, ap)
		// AddrService unmaps; the kernel does not know mapped addresses.
		s.key.Address, s.key.Family = ap, IPv4
		if ap.Addr().Is6() {
			s.key.Family = IPv6
		}
	}
	t.services = append(t.services, s)
	return nil
}

// endService notes where the real servers of the last service end and gives
// them its family if they are what it was known from.
func (t *countsTable) endService() {
	if len(t.services) == 0 {
		return
	}
	s := &t.services[len(t.services)-1]
	s.to = len(t.counts)
	if s.key.FWMark != 0 && s.key.Family != 0 {
		t.setFamily(s, s.key.Family)
	}
}

func (t *countsTable) setFamily(s *countsService, f Family) {
	s.key.Family = f
	for i := s.from; i < s.to; i++ {
		t.counts[i].Service.Family = f
	}
}

func (t *countsTable) server(line []byte) error {
	if len(t.services) == 0 {
		return errors.New("real server without a service")
	}
	s := &t.services[len(t.services)-1]
	where, rest := field(line)
	forward, rest := field(rest)
	ap, err := parseHexAddrPort(where)
	if err != nil {
		return err
	}
	switch string(forward) {
	case "Masq", "Local", "Route":
		if s.key.Family == 0 {
			s.key.Family = IPv4
			if ap.Addr().Is6() {
				s.key.Family = IPv6
			}
		}
	case "Tunnel":
	default:
		return errors.New("unknown forwarding method")
	}
	weight, rest, ok1 := decimal(rest)
	active, rest, ok2 := decimal(rest)
	inactive, rest, ok3 := decimal(rest)
	if !ok1 || !ok2 || !ok3 {
		return errors.New("not a 32-bit number")
	}
	if extra, _ := field(rest); len(extra) != 0 {
		return errors.New("unknown column")
	}
	t.counts = append(t.counts, DestinationCounts{})
	d := &t.counts[len(t.counts)-1]
	d.Service, d.Address, d.Weight = s.key, ap, weight
	d.Conns.Active, d.Conns.Inactive = active, inactive
	return nil
}

// missing returns the services of keys, a dump, that the table lacks, without
// doubles. It gives firewall mark services of the table the family that the dump
// says. Where that is not sure, for both have the mark, the service is missing.
func (t *countsTable) missing(keys []ServiceKey) []ServiceKey {
	has := make(map[ServiceKey]bool, len(keys))
	for _, s := range t.services {
		if s.key.Family != 0 {
			has[s.key] = true
		}
	}
	marks := make(map[uint32]Family) // the family of a mark, 0 for both
	for _, k := range keys {
		if k.FWMark == 0 {
			continue
		}
		if f, ok := marks[k.FWMark]; ok && f != k.Family {
			marks[k.FWMark] = 0
		} else {
			marks[k.FWMark] = k.Family
		}
	}
	for i := range t.services {
		s := &t.services[i]
		if s.key.Family != 0 {
			continue
		}
		known := s.key
		known.Family = marks[s.key.FWMark]
		if known.Family != 0 && !has[known] {
			has[known] = true
			t.setFamily(s, known.Family)
		}
	}
	var list []ServiceKey
	for _, k := range keys {
		if !has[k] {
			has[k] = true
			list = append(list, k)
		}
	}
	return list
}

// add appends a service and its real servers.
func (t *countsTable) add(k ServiceKey, list []DestinationStatus) {
	s := countsService{key: k, from: len(t.counts)}
	for i := range list {
		d := DestinationCounts{DestinationKey: DestinationKey{k, list[i].Address}, Weight: list[i].Weight}
		d.Conns.Active, d.Conns.Inactive = list[i].Conns.Active, list[i].Conns.Inactive
		t.counts = append(t.counts, d)
	}
	s.to = len(t.counts)
	t.services = append(t.services, s)
}

// list returns the counts without those of a service that came twice and those
// whose family could not be found out.
func (t *countsTable) list() []DestinationCounts {
	seen := make(map[ServiceKey]struct{}, len(t.services))
	kept := t.counts[:0]
	for _, s := range t.services {
		if s.key.Family == 0 {
			continue
		}
		if _, ok := seen[s.key]; ok {
			continue
		}
		seen[s.key] = struct{}{}
		if len(kept) == s.from {
			kept = t.counts[:s.to]
		} else {
			kept = append(kept, t.counts[s.from:s.to]...)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// field cuts the next field, which spaces end, off a line. Fields are so short
// that a plain loop is faster than bytes.IndexByte.
func field(b []byte) (f, rest []byte) {
	i := 0
	for i < len(b) && b[i] == ' ' {
		i++
	}
	for j := i; j < len(b); j++ {
		if b[j] == ' ' {
			return b[i:j], b[j:]
		}
	}
	return b[i:], nil
}

// parseProtocol is the inverse of the kernel's ip_vs_proto_name.
func parseProtocol(b []byte) (Protocol, error) {
	switch string(b) {
	case "TCP":
		return TCP, nil
	case "UDP":
		return UDP, nil
	case "SCTP":
		return SCTP, nil
	case "IP":
		return 0, nil
	case "ICMP":
		return 1, nil
	case "ICMPv6":
		return 58, nil
	case "ESP":
		return 50, nil
	case "AH":
		return 51, nil
	}
	if digits, ok := bytes.CutPrefix(b, []byte("IP_")); ok {
		if n, err := strconv.ParseUint(string(digits), 10, 8); err == nil {
			return Protocol(n), nil
		}
	}
	return 0, errors.New("unknown protocol")
}

var errAddress = errors.New("not an address and port")

// parseHexAddrPort parses "0A000002:0050" and
// "[2001:0db8:0000:0000:0000:0000:0000:0002]:0050".
func parseHexAddrPort(b []byte) (netip.AddrPort, error) {
	const v4, v6 = 8, 39
	switch {
	case len(b) == v4+5 && b[v4] == ':':
		a, ok := hexAddr(b[:v4])
		port, ok2 := parseHex(b[v4+1:], 4)
		if ok && ok2 {
			return netip.AddrPortFrom(a, uint16(port)), nil
		}
	case len(b) == v6+7 && b[0] == '[' && b[v6+1] == ']' && b[v6+2] == ':':
		a, ok := hexAddr(b[1 : v6+1])
		port, ok2 := parseHex(b[v6+3:], 4)
		if ok && ok2 {
			return netip.AddrPortFrom(a, uint16(port)), nil
		}
	}
	return netip.AddrPort{}, errAddress
}

// hexAddr parses an IPv4 address of 8 digits or an IPv6 one of eight groups of
// 4 (the kernel's %pI6).
func hexAddr(b []byte) (netip.Addr, bool) {
	switch len(b) {
	case 8:
		n, ok := parseHex(b, 8)
		return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), ok
	case 39:
		var a [16]byte
		for i := range 8 {
			g := b[i*5:]
			n, ok := parseHex(g[:4], 4)
			if !ok || i < 7 && g[4] != ':' {
				return netip.Addr{}, false
			}
			a[2*i], a[2*i+1] = byte(n>>8), byte(n)
		}
		return netip.AddrFrom16(a), true
	}
	return netip.Addr{}, false
}

// parseHex parses exactly digits hexadecimal digits, at most 8.
func parseHex(b []byte, digits int) (n uint32, ok bool) {
	if len(b) != digits {
		return 0, false
	}
	for _, c := range b {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		default:
			return 0, false
		}
		n = n<<4 | uint32(c)
	}
	return n, true
}

// decimal cuts the next field, a number of 32 bits, off a line.
func decimal(b []byte) (n uint32, rest []byte, ok bool) {
	b, rest = field(b)
	if len(b) == 0 || len(b) > 10 {
		return 0, rest, false
	}
	var v uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, rest, false
		}
		v = v*10 + uint64(c-'0')
	}
	return uint32(v), rest, v <= math.MaxUint32
}
