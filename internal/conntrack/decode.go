package conntrack

import (
	"encoding/binary"
	"time"

	"github.com/lbd-project/lbd/internal/flow"
)

// decodeEvent writes the entry of an IPCTNL_MSG_CT_NEW or IPCTNL_MSG_CT_DELETE
// into ev. It says !ok for an entry that is none of ours to count: of another
// protocol than TCP, UDP and SCTP, or in another zone than the default one,
// where the same tuple may mean another flow.
func decodeEvent(m *message, ev *Event) (ok bool, err error) {
	*ev = Event{Kind: Update}
	switch {
	case m.Type == msgDelete:
		ev.Kind = Destroy
	case m.Flags&flagCreate != 0:
		ev.Kind = New
	}
	list, err := m.attrs()
	if err != nil {
		return false, err
	}
	return ev.decode(list)
}

func (ev *Event) decode(list attrs) (ok bool, err error) {
	var orig, reply tuple
	var counted int
	for {
		typ, v, more, err := list.next()
		if err != nil {
			return false, err
		}
		if !more {
			break
		}
		switch typ {
		case attrTupleOrig:
			err = orig.decode(v)
		case attrTupleReply:
			err = reply.decode(v)
		case attrZone:
			var zone uint16
			if err = get16(v, &zone); zone != 0 {
				return false, nil
			}
		case attrStatus:
			err = get32(v, &ev.Status)
		case attrMark:
			err = get32(v, &ev.Mark)
		case attrID:
			err = get32(v, &ev.ID)
		case attrTimeout:
			var seconds uint32
			err = get32(v, &seconds)
			ev.Timeout = time.Duration(seconds) * time.Second
		case attrProtoinfo:
			err = ev.decodeProtoinfo(v)
		case attrCountersOrig:
			counted++
			err = decodePair(v, &ev.PacketsOrig, &ev.BytesOrig)
		case attrCountersReply:
			counted++
			err = decodePair(v, &ev.PacketsReply, &ev.BytesReply)
		case attrTimestamp:
			var start, stop uint64
			err = decodePair(v, &start, &stop)
			ev.Start, ev.Stop = int64(start), int64(stop)
		case attrTimestampEvent:
			var at uint64
			err = get64(v, &at)
			ev.At = int64(at)
		}
		if err != nil {
			return false, malformed("attribute %d: %v", typ, err)
		}
	}
	ev.Counted = counted == 2
	return ev.setTuples(&orig, &reply)
}

func (ev *Event) setTuples(orig, reply *tuple) (ok bool, err error) {
	switch {
	case orig.zoned || reply.zoned:
		return false, nil
	case orig.has&hasProtocol == 0 || reply.has&hasProtocol == 0:
		return false, malformed("a tuple is missing or has no protocol")
	case orig.protocol != protoTCP && orig.protocol != protoUDP && orig.protocol != protoSCTP:
		return false, nil
	case !orig.complete() || !reply.complete():
		return false, malformed("a tuple without address or port")
	case orig.protocol != reply.protocol || orig.has != reply.has:
		return false, malformed("tuples of different families or protocols")
	}
	ev.Orig, ev.Reply = orig.flow(), reply.flow()
	return true, nil
}

// decodeProtoinfo reads the state of a TCP or SCTP connection.
func (ev *Event) decodeProtoinfo(list attrs) error {
	for {
		typ, v, more, err := list.next()
		if err != nil || !more {
			return err
		}
		switch typ {
		case attrProtoinfoTCP:
			err = ev.decodeTCP(v)
		case attrProtoinfoSCTP:
			err = decodeState(v, &ev.SCTPState)
		}
		if err != nil {
			return err
		}
	}
}

func (ev *Event) decodeTCP(list attrs) error {
	for {
		typ, v, more, err := list.next()
		if err != nil || !more {
			return err
		}
		switch typ {
		case attrState:
			err = get8(v, &ev.TCPState)
		case attrTCPFlagsOrig:
			err = decodeCloses(v, &ev.ClientCloses)
		case attrTCPFlagsReply:
			err = decodeCloses(v, &ev.ServerCloses)
		}
		if err != nil {
			return err
		}
	}
}

// decodeCloses reads struct nf_ct_tcp_flags: flags and a mask, which is for
// writing.
func decodeCloses(v []byte, closes *bool) error {
	const closeInit = 0x04 // IP_CT_TCP_FLAG_CLOSE_INIT
	if len(v) != 2 {
		return malformed("%d bytes, not 2", len(v))
	}
	*closes = v[0]&closeInit != 0
	return nil
}

func decodeState(list attrs, state *uint8) error {
	for {
		typ, v, more, err := list.next()
		if err != nil || !more {
			return err
		}
		if typ == attrState {
			if err := get8(v, state); err != nil {
				return err
			}
		}
	}
}

// decodePair reads the 64-bit attributes 1 and 2: packets and bytes, or start
// and stop.
func decodePair(list attrs, first, second *uint64) error {
	for {
		typ, v, more, err := list.next()
		if err != nil || !more {
			return err
		}
		switch typ {
		case attrPackets:
			err = get64(v, first)
		case attrBytes:
			err = get64(v, second)
		}
		if err != nil {
			return err
		}
	}
}

// What a tuple has.
const (
	hasProtocol = 1 << iota
	hasSrc4
	hasDst4
	hasSrc6
	hasDst6
	hasSrcPort
	hasDstPort
)

// tuple gathers the attributes of a flow.Tuple.
type tuple struct {
	src, dst         [16]byte // an IPv4 address in the first four
	srcPort, dstPort uint16
	protocol, has    uint8
	zoned            bool
}

func (t *tuple) complete() bool {
	const ports = hasProtocol | hasSrcPort | hasDstPort
	return t.has == ports|hasSrc4|hasDst4 || t.has == ports|hasSrc6|hasDst6
}

func (t *tuple) flow() flow.Tuple {
	if t.has&hasSrc4 != 0 {
		return flow.New4(t.protocol, [4]byte(t.src[:4]), [4]byte(t.dst[:4]), t.srcPort, t.dstPort)
	}
	return flow.New6(t.protocol, t.src, t.dst, t.srcPort, t.dstPort)
}

func (t *tuple) decode(list attrs) error {
	for {
		typ, v, more, err := list.next()
		if err != nil || !more {
			return err
		}
		switch typ {
		case attrTupleIP:
			err = t.decodeIP(v)
		case attrTupleProto:
			err = t.decodeProto(v)
		case attrTupleZone:
			var zone uint16
			err = get16(v, &zone)
			t.zoned = t.zoned || zone != 0
		}
		if err != nil {
			return err
		}
	}
}

func (t *tuple) decodeIP(list attrs) error {
	for {
		typ, v, more, err := list.next()
		if err != nil || !more {
			return err
		}
		switch typ {
		case attrIPv4Src:
			t.has |= hasSrc4
			err = getAddr(v, t.src[:4])
		case attrIPv4Dst:
			t.has |= hasDst4
			err = getAddr(v, t.dst[:4])
		case attrIPv6Src:
			t.has |= hasSrc6
			err = getAddr(v, t.src[:])
		case attrIPv6Dst:
			t.has |= hasDst6
			err = getAddr(v, t.dst[:])
		}
		if err != nil {
			return err
		}
	}
}

func (t *tuple) decodeProto(list attrs) error {
	for {
		typ, v, more, err := list.next()
		if err != nil || !more {
			return err
		}
		switch typ {
		case attrProtoNum:
			t.has |= hasProtocol
			err = get8(v, &t.protocol)
		case attrProtoSrcPort:
			t.has |= hasSrcPort
			err = get16(v, &t.srcPort)
		case attrProtoDstPort:
			t.has |= hasDstPort
			err = get16(v, &t.dstPort)
		}
		if err != nil {
			return err
		}
	}
}

// The numbers of nfnetlink are in network order.

func get8(v []byte, to *uint8) error {
	if len(v) != 1 {
		return malformed("%d bytes, not 1", len(v))
	}
	*to = v[0]
	return nil
}

func get16(v []byte, to *uint16) error {
	if len(v) != 2 {
		return malformed("%d bytes, not 2", len(v))
	}
	*to = binary.BigEndian.Uint16(v)
	return nil
}

func get32(v []byte, to *uint32) error {
	if len(v) != 4 {
		return malformed("%d bytes, not 4", len(v))
	}
	*to = binary.BigEndian.Uint32(v)
	return nil
}

func get64(v []byte, to *uint64) error {
	if len(v) != 8 {
		return malformed("%d bytes, not 8", len(v))
	}
	*to = binary.BigEndian.Uint64(v)
	return nil
}

func getAddr(v, to []byte) error {
	if len(v) != len(to) {
		return malformed("address of %d bytes, not %d", len(v), len(to))
	}
	copy(to, v)
	return nil
}
