package ipvs

import "encoding/binary"

// message is one netlink message of a datagram, in place.
type message struct {
	typ, flags uint16
	seq        uint32
	payload    []byte // after the netlink header
}

// parse takes the first message off a datagram and returns the rest.
func (m *message) parse(b []byte) (rest []byte, err error) {
	if len(b) < nlmsgHeaderLen {
		return nil, errShort
	}
	n := binary.NativeEndian.Uint32(b)
	if n < nlmsgHeaderLen || uint64(n) > uint64(len(b)) {
		return nil, errShort
	}
	m.typ = binary.NativeEndian.Uint16(b[4:])
	m.flags = binary.NativeEndian.Uint16(b[6:])
	m.seq = binary.NativeEndian.Uint32(b[8:])
	m.payload = b[nlmsgHeaderLen:n]
	return b[min((int(n)+3)&^3, len(b)):], nil
}

// body returns the attributes of a message of the IPVS family after checking
// that it carries the command it should.
func (m *message) body(family uint16, cmd uint8) ([]byte, error) {
	if m.typ != family {
		return nil, errUnknownType
	}
	if len(m.payload) < genlHeaderLen {
		return nil, errShort
	}
	if m.payload[0] != cmd {
		return nil, errUnexpected
	}
	return m.payload[genlHeaderLen:], nil
}
