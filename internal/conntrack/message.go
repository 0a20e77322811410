package conntrack

import (
	"encoding/binary"
	"fmt"
	"syscall"
)

// message is a netlink message: its header (struct nlmsghdr) and what follows.
type message struct {
	Type, Flags uint16
	Seq         uint32
	Body        []byte
}

// nextMessage takes the first message off a datagram.
func nextMessage(b []byte) (m message, rest []byte, err error) {
	if len(b) < nlmsgHeaderLen {
		return message{}, nil, malformed("%d bytes where a header should be", len(b))
	}
	n := int64(binary.NativeEndian.Uint32(b))
	if n < nlmsgHeaderLen || n > int64(len(b)) {
		return message{}, nil, malformed("length %d in a datagram with %d bytes left", n, len(b))
	}
	m = message{
		Type:  binary.NativeEndian.Uint16(b[4:]),
		Flags: binary.NativeEndian.Uint16(b[6:]),
		Seq:   binary.NativeEndian.Uint32(b[8:]),
		Body:  b[nlmsgHeaderLen:n],
	}
	return m, b[min(align(int(n)), len(b)):], nil
}

// attrs returns the attributes behind the struct nfgenmsg.
func (m *message) attrs() (attrs, error) {
	if len(m.Body) < nfgenmsgLen {
		return nil, malformed("%d bytes where an nfgenmsg should be", len(m.Body))
	}
	return m.Body[nfgenmsgLen:], nil
}

// errno returns the error of an NLMSG_ERROR, nil for an acknowledgement, or of
// an NLMSG_DONE, which may carry none.
func (m *message) errno() error {
	if len(m.Body) < 4 {
		if m.Type == nlmsgDone {
			return nil
		}
		return malformed("%d bytes where an error should be", len(m.Body))
	}
	n := int32(binary.NativeEndian.Uint32(m.Body))
	switch {
	case n == 0:
		return nil
	case n > 0 || n < -4095: // MAX_ERRNO of include/linux/err.h
		return malformed("error number %d", n)
	}
	return hint(fmt.Errorf("kernel: %w", syscall.Errno(-n)))
}

// attrs is a run of attributes.
type attrs []byte

// next takes the first attribute off. It says !ok at the end and, with err, at
// an attribute that cannot be.
func (a *attrs) next() (typ uint16, value []byte, ok bool, err error) {
	b := *a
	if len(b) == 0 {
		return 0, nil, false, nil
	}
	if len(b) < attrHeaderLen {
		return 0, nil, false, malformed("%d bytes where an attribute should be", len(b))
	}
	n := int(binary.NativeEndian.Uint16(b))
	typ = binary.NativeEndian.Uint16(b[2:]) & attrTypeMask
	if n < attrHeaderLen || n > len(b) {
		return 0, nil, false, malformed("attribute %d: length %d with %d bytes left", typ, n, len(b))
	}
	*a = b[min(align(n), len(b)):]
	return typ, b[attrHeaderLen:n], true, nil
}

// each calls fn for every attribute of a message, until it fails.
func (m *message) each(fn func(typ uint16, value []byte) error) error {
	list, err := m.attrs()
	for err == nil {
		typ, v, more, nerr := list.next()
		if nerr != nil || !more {
			return nerr
		}
		if err = fn(typ, v); err != nil {
			err = malformed("attribute %d: %v", typ, err)
		}
	}
	return err
}
