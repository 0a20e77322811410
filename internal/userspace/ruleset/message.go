package ruleset

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

const (
	headerLen = unix.SizeofNlMsghdr
	attrLen   = unix.SizeofNlAttr
	genmsgLen = 4 // struct nfgenmsg
)

var errTruncated = errors.New("truncated netlink message")

// netlinkMessage is a message; its body begins after the header.
type netlinkMessage struct {
	kind, flags uint16
	seq         uint32
	body        []byte
}

// nextMessage splits the first message off.
func nextMessage(b []byte) (m netlinkMessage, rest []byte, err error) {
	if len(b) < headerLen {
		return m, nil, errTruncated
	}
	ne := binary.NativeEndian
	size := int(ne.Uint32(b))
	if size < headerLen || size > len(b) {
		return m, nil, errTruncated
	}
	m = netlinkMessage{kind: ne.Uint16(b[4:]), flags: ne.Uint16(b[6:]), seq: ne.Uint32(b[8:]), body: b[headerLen:size]}
	return m, afterPadding(b, size), nil
}

// failure is the error that an NLMSG_ERROR tells of; nil for an acknowledgement.
func (m *netlinkMessage) failure() error {
	if len(m.body) < 4 {
		return errTruncated
	}
	if code := int32(binary.NativeEndian.Uint32(m.body)); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// attributes are those after the nfgenmsg.
func (m *netlinkMessage) attributes() ([]byte, error) {
	if len(m.body) < genmsgLen {
		return nil, errTruncated
	}
	return m.body[genmsgLen:], nil
}

// newRequest is a request about nftables, with attributes or without; its sequence
// number is 0 yet.
func newRequest(kind, flags uint16, family uint8, attributes []byte) []byte {
	b := append(make([]byte, headerLen+genmsgLen), attributes...)
	ne := binary.NativeEndian
	ne.PutUint32(b, uint32(len(b)))
	ne.PutUint16(b[4:], unix.NFNL_SUBSYS_NFTABLES<<8|kind)
	ne.PutUint16(b[6:], flags)
	b[headerLen] = family
	return b
}

// number gives a request its sequence number.
func number(request []byte, seq uint32) { binary.NativeEndian.PutUint32(request[8:], seq) }

func appendAttribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrLen+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return padded(append(b, value...))
}

// attributes are those of a message, by type.
type attributes map[uint16][]byte

// text is a string attribute without its NUL.
func (a attributes) text(kind uint16) string {
	v := a[kind]
	if n := len(v); n > 0 && v[n-1] == 0 {
		v = v[:n-1]
	}
	return string(v)
}

// parse splits attributes; of repeated ones the last counts.
func parse(b []byte) (attributes, error) {
	a := attributes{}
	for len(b) > 0 {
		kind, value, rest, err := nextAttribute(b)
		if err != nil {
			return nil, err
		}
		a[kind], b = value, rest
	}
	return a, nil
}

// nextAttribute splits the first attribute off.
func nextAttribute(b []byte) (kind uint16, value, rest []byte, err error) {
	if len(b) < attrLen {
		return 0, nil, nil, errTruncated
	}
	size := int(binary.NativeEndian.Uint16(b))
	if size < attrLen || size > len(b) {
		return 0, nil, nil, errTruncated
	}
	kind = binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	return kind, b[attrLen:size], afterPadding(b, size), nil
}

// afterPadding is what follows size bytes, which are padded unless they are the
// last.
func afterPadding(b []byte, size int) []byte { return b[min((size+3)&^3, len(b)):] }
