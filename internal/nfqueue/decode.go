package nfqueue

import (
	"encoding/binary"
	"errors"
)

// What is wrong with a message. The values are fixed, so that damaged messages
// cost no allocation.
var (
	errHeader       = errors.New("netlink message shorter than its header")
	errLength       = errors.New("netlink message longer than what was received")
	errFailure      = errors.New("NLMSG_ERROR is short")
	errAttribute    = errors.New("attribute exceeds its message")
	errPacketHeader = errors.New("attribute NFQA_PACKET_HDR is short")
	errMark         = errors.New("attribute NFQA_MARK is short")
	errCapLen       = errors.New("attribute NFQA_CAP_LEN is short")
	errNoID         = errors.New("packet without NFQA_PACKET_HDR")
)

// kind is what a message is about; 0 is nothing that a queue's reader needs.
type kind uint8

const (
	// kindPacket is a packet that waits for a verdict.
	kindPacket kind = iota + 1
	// kindFailure is an NLMSG_ERROR: an error, or with errno 0 an acknowledgement.
	kindFailure
)

// message is one netlink message of a queue's socket.
type message struct {
	kind kind
	// packet is set with kindPacket. Its payload is part of what was decoded.
	packet Packet
	// hasID is set where the packet's ID is known, also in a message that is
	// damaged elsewhere.
	hasID bool
	// errno and seq are set with kindFailure: what went wrong, as a positive
	// number, and the sequence number of the request.
	errno int32
	seq   uint32
}

// decode reads the first message of b and returns what follows it. After an
// error what follows is nil where the message's end is unknown.
func (m *message) decode(b []byte) (rest []byte, err error) {
	*m = message{}
	if len(b) < headerLen {
		return nil, errHeader
	}
	n := int(binary.NativeEndian.Uint32(b))
	if n < headerLen {
		return nil, errHeader
	}
	body := b[headerLen:]
	if n > len(b) {
		// Cut: the attributes at the front, with the packet's ID, are of use.
		err = errLength
	} else {
		body = b[headerLen:n]
		rest = b[min(align(n), len(b)):]
	}
	var derr error
	switch binary.NativeEndian.Uint16(b[4:]) {
	case typePacket:
		m.kind = kindPacket
		derr = m.decodePacket(body)
	case typeError:
		m.kind = kindFailure
		derr = m.decodeFailure(body)
	}
	if err == nil {
		err = derr
	}
	return rest, err
}

// decodeFailure reads struct nlmsgerr: a negative errno and the request's header.
func (m *message) decodeFailure(b []byte) error {
	if len(b) < 4+headerLen {
		return errFailure
	}
	m.errno = -int32(binary.NativeEndian.Uint32(b))
	m.seq = binary.NativeEndian.Uint32(b[4+8:])
	return nil
}

func (m *message) decodePacket(b []byte) error {
	if len(b) < nfHeaderLen {
		return errHeader
	}
	var whole int
	b = b[nfHeaderLen:]
	for len(b) >= attrLen {
		n := int(binary.NativeEndian.Uint16(b))
		if n < attrLen || n > len(b) {
			return errAttribute
		}
		v := b[attrLen:n]
		switch binary.NativeEndian.Uint16(b[2:]) & attrTypeMask {
		case attrPacketHeader:
			if len(v) < packetHeaderLen {
				return errPacketHeader
			}
			m.packet.ID = binary.BigEndian.Uint32(v)
			m.packet.Hook = v[6]
			m.hasID = true
		case attrMark:
			if len(v) < 4 {
				return errMark
			}
			m.packet.Mark = binary.BigEndian.Uint32(v)
		case attrCapLen:
			if len(v) < 4 {
				return errCapLen
			}
			whole = int(binary.BigEndian.Uint32(v) & 0x7fffffff)
		case attrPayload:
			m.packet.Payload = v
		}
		b = b[min(align(n), len(b)):]
	}
	if !m.hasID {
		return errNoID
	}
	m.packet.Length = max(whole, len(m.packet.Payload))
	return nil
}
