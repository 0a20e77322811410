package ipvs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// attrs walks netlink attributes in place. It never allocates and never reads
// past a length that it has not checked.
//
//	for a := (attrs{b: payload}); a.next(); {
//		... a.typ, a.val
//	}
//	// a.err
type attrs struct {
	b   []byte
	typ uint16
	val []byte
	err error
}

var errAttrLength = errors.New("attribute longer than its message")

func (a *attrs) next() bool {
	if len(a.b) < attrHeaderLen {
		// Fewer bytes than a header at the end are padding.
		return false
	}
	n := int(binary.NativeEndian.Uint16(a.b))
	if n < attrHeaderLen || n > len(a.b) {
		a.err = errAttrLength
		return false
	}
	a.typ = binary.NativeEndian.Uint16(a.b[2:]) & attrTypeMask
	a.val = a.b[attrHeaderLen:n]
	a.b = a.b[min((n+3)&^3, len(a.b)):]
	return true
}

// The readers of a value note in a.err that its length is wrong, which ends the
// walk; what names the attribute in that error.

func (a *attrs) fixed(what string, size int) bool {
	if len(a.val) != size {
		a.fail("%s has %d bytes, want %d", what, len(a.val), size)
		return false
	}
	return true
}

func (a *attrs) fail(format string, args ...any) {
	a.err = fmt.Errorf(format, args...)
	a.b = nil
}

func (a *attrs) u8(what string) uint8 {
	if !a.fixed(what, 1) {
		return 0
	}
	return a.val[0]
}

func (a *attrs) u16(what string) uint16 {
	if !a.fixed(what, 2) {
		return 0
	}
	return binary.NativeEndian.Uint16(a.val)
}

func (a *attrs) port(what string) uint16 {
	if !a.fixed(what, 2) {
		return 0
	}
	return binary.BigEndian.Uint16(a.val)
}

func (a *attrs) u32(what string) uint32 {
	if !a.fixed(what, 4) {
		return 0
	}
	return binary.NativeEndian.Uint32(a.val)
}

// text returns a string up to its zero byte, without copying it.
func (a *attrs) text(what string) []byte {
	s, _, ok := bytes.Cut(a.val, []byte{0})
	if !ok || len(s) > maxName {
		a.fail("%s is no text of at most %d bytes", what, maxName)
		return nil
	}
	return s
}

// family returns an address family.
func (a *attrs) family(what string) Family {
	switch v := a.u16(what); {
	case a.err != nil:
		return 0
	case v == uint16(IPv4) || v == uint16(IPv6):
		return Family(v)
	default:
		a.fail("%s %d is unknown", what, v)
		return 0
	}
}

// address makes an address of the bytes of an attribute, once the family is
// known. Attributes come in any order, the family after the address too. An IPv4
// address fills 4 of the 16 bytes.
func address(what string, f Family, b []byte) (netip.Addr, error) {
	switch {
	case f == IPv4 && (len(b) == 4 || len(b) == 16):
		return netip.AddrFrom4([4]byte(b[:4])), nil
	case f == IPv6 && len(b) == 16:
		return netip.AddrFrom16([16]byte(b)), nil
	}
	return netip.Addr{}, fmt.Errorf("%s has %d bytes, which is no %v address", what, len(b), f)
}

// missing returns an error that names the first attribute that is not in seen.
func missing(seen uint32, want ...uint16) error {
	for _, typ := range want {
		if seen&(1<<typ) == 0 {
			return fmt.Errorf("attribute %d is missing", typ)
		}
	}
	return nil
}

// nested returns the value of a first-level attribute; the last one counts, as
// in the kernel.
func nested(payload []byte, typ uint16) ([]byte, error) {
	var val []byte
	a := attrs{b: payload}
	for a.next() {
		if a.typ == typ {
			val = a.val
		}
	}
	if a.err != nil {
		return nil, a.err
	}
	if val == nil {
		return nil, fmt.Errorf("attribute %d is missing", typ)
	}
	return val, nil
}

// names keeps the strings of scheduler and engine names, so that a dump of a
// thousand services makes a handful of them.
type names map[string]string

func (n names) get(b []byte) string {
	if s, ok := n[string(b)]; ok {
		return s
	}
	s := string(b)
	if n != nil && len(n) < 64 {
		n[s] = s
	}
	return s
}

// decodeService decodes the first-level attributes of a service's message.
func decodeService(payload []byte, n names) (ServiceStatus, error) {
	nest, err := nested(payload, attrService)
	if err != nil {
		return ServiceStatus{}, fmt.Errorf("service: %w", err)
	}
	s, err := decodeServiceNest(nest, n)
	if err != nil {
		return ServiceStatus{}, fmt.Errorf("service: %w", err)
	}
	return s, nil
}

func decodeServiceNest(b []byte, n names) (s ServiceStatus, err error) {
	svc, stats, stats64, err := decodeServiceConfig(b, n)
	if err != nil {
		return ServiceStatus{}, err
	}
	s.Service = svc
	if s.Stats, err = decodeStats(stats, stats64); err != nil {
		return ServiceStatus{}, err
	}
	return s, nil
}

// decodeServiceKey is decodeService for the key alone. It skips the statistics,
// which are most of the message.
func decodeServiceKey(payload []byte, n names) (ServiceKey, error) {
	nest, err := nested(payload, attrService)
	var s Service
	if err == nil {
		s, _, _, err = decodeServiceConfig(nest, n)
	}
	if err != nil {
		return ServiceKey{}, fmt.Errorf("service: %w", err)
	}
	return s.ServiceKey, nil
}

// decodeServiceConfig leaves the statistics undecoded.
func decodeServiceConfig(b []byte, n names) (s Service, stats, stats64 []byte, err error) {
	var (
		seen     uint32
		addr     []byte
		port     uint16
		netmask  []byte
		protocol uint16
	)
	a := attrs{b: b}
	for a.next() {
		if a.typ < 32 {
			seen |= 1 << a.typ
		}
		switch a.typ {
		case svcAF:
			s.Family = a.family("service family")
		case svcProtocol:
			protocol = a.u16("service protocol")
		case svcAddr:
			addr = a.val
		case svcPort:
			port = a.port("service port")
		case svcFWMark:
			s.FWMark = a.u32("fwmark")
		case svcSchedName:
			s.Scheduler = Scheduler(n.get(a.text("scheduler")))
		case svcPEName:
			s.Persistence.Engine = n.get(a.text("persistence engine"))
		case svcFlags:
			// struct ip_vs_flags: the flags, then a mask of all ones.
			if a.fixed("service flags", 8) {
				s.Flags = ServiceFlags(binary.NativeEndian.Uint32(a.val)) &^ serviceHashed
			}
		case svcTimeout:
			s.Persistence.Timeout = time.Duration(a.u32("persistence timeout")) * time.Second
		case svcNetmask:
			if a.fixed("netmask", 4) {
				netmask = a.val
			}
		case svcStats:
			stats = a.val
		case svcStats64:
			stats64 = a.val
		}
	}
	if a.err != nil {
		return Service{}, nil, nil, a.err
	}
	if err := missing(seen, svcAF, svcSchedName, svcFlags, svcTimeout, svcNetmask); err != nil {
		return Service{}, nil, nil, err
	}
	if s.FWMark == 0 {
		if err := missing(seen, svcProtocol, svcAddr, svcPort); err != nil {
			return Service{}, nil, nil, err
		}
		if protocol > 255 {
			return Service{}, nil, nil, fmt.Errorf("service protocol %d is unknown", protocol)
		}
		s.Protocol = Protocol(protocol)
		ip, err := address("service address", s.Family, addr)
		if err != nil {
			return Service{}, nil, nil, err
		}
		s.Address = netip.AddrPortFrom(ip, port)
	}
	if s.Family == IPv6 {
		s.Persistence.Netmask = Netmask{binary.NativeEndian.Uint32(netmask), true}.canonical(IPv6)
	} else {
		s.Persistence.Netmask = Netmask{binary.BigEndian.Uint32(netmask), true}.canonical(IPv4)
	}
	return s, stats, stats64, nil
}

// decodeDest decodes the first-level attributes of a real server's message into
// d. service is the family where the kernel, before Linux 3.18, sends none.
func decodeDest(payload []byte, service Family, d *DestinationStatus) error {
	*d = DestinationStatus{}
	nest, err := nested(payload, attrDest)
	if err == nil {
		err = decodeDestNest(nest, service, d)
	}
	if err != nil {
		*d = DestinationStatus{}
		return fmt.Errorf("real server: %w", err)
	}
	return nil
}

// decodeDestNest sets the fields of d that there are attributes for.
func decodeDestNest(b []byte, family Family, d *DestinationStatus) (err error) {
	var (
		seen    uint32
		addr    []byte
		port    uint16
		stats   []byte
		stats64 []byte
	)
	a := attrs{b: b}
	for a.next() {
		if a.typ < 32 {
			seen |= 1 << a.typ
		}
		switch a.typ {
		case destAddr:
			addr = a.val
		case destPort:
			port = a.port("real server port")
		case destAddrFamily:
			family = a.family("real server family")
		case destFwdMethod:
			d.Forward = ForwardMethod(a.u32("forwarding method") & forwardMask)
		case destWeight:
			d.Weight = a.u32("weight")
		case destUThresh:
			d.UpperThreshold = a.u32("upper threshold")
		case destLThresh:
			d.LowerThreshold = a.u32("lower threshold")
		case destActiveConns:
			d.Conns.Active = a.u32("active connections")
		case destInactConns:
			d.Conns.Inactive = a.u32("inactive connections")
		case destPersistConns:
			d.Conns.Persistent = a.u32("persistent connections")
		case destTunType:
			d.Tunnel.Type = TunnelType(a.u8("tunnel type"))
		case destTunPort:
			d.Tunnel.Port = a.port("tunnel port")
		case destTunFlags:
			d.Tunnel.Checksum = TunnelChecksum(a.u16("tunnel flags"))
		case destStats:
			stats = a.val
		case destStats64:
			stats64 = a.val
		}
	}
	if a.err == nil {
		a.err = missing(seen, destAddr, destPort, destFwdMethod, destWeight, destUThresh, destLThresh)
	}
	if a.err != nil {
		return a.err
	}
	ip, err := address("real server address", family, addr)
	if err != nil {
		return err
	}
	d.Address = netip.AddrPortFrom(ip, port)
	d.Stats, err = decodeStats(stats, stats64)
	return err
}

// decodeStats decodes STATS64 where the kernel sends it (Linux 4.1) and STATS,
// whose counters wrap at 32 bits, where it does not.
func decodeStats(stats, stats64 []byte) (s Stats, err error) {
	if stats64 != nil {
		stats = stats64
	}
	var v [statsOutBPS + 1]uint64
	a := attrs{b: stats}
	for a.next() {
		if a.typ < statsConns || a.typ > statsOutBPS {
			continue
		}
		switch len(a.val) {
		case 8:
			v[a.typ] = binary.NativeEndian.Uint64(a.val)
		case 4:
			v[a.typ] = uint64(binary.NativeEndian.Uint32(a.val))
		default:
			a.fail("statistic %d has %d bytes, want 4 or 8", a.typ, len(a.val))
		}
	}
	if a.err != nil {
		return Stats{}, a.err
	}
	return Stats{
		Connections: v[1], PacketsIn: v[2], PacketsOut: v[3], BytesIn: v[4], BytesOut: v[5],
		ConnectionRate: v[6], PacketRateIn: v[7], PacketRateOut: v[8], ByteRateIn: v[9], ByteRateOut: v[10],
	}, nil
}
