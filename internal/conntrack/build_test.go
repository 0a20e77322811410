package conntrack

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/lbd-project/lbd/internal/flow"
)

// build makes the message that the kernel would send of an event.
func build(ev *Event) []byte {
	typ, flags := uint16(msgNew), uint16(0)
	switch ev.Kind {
	case New:
		flags = flagCreate
	case Destroy:
		typ = msgDelete
	}
	family := uint8(familyIPv6)
	if ev.Orig.Is4() {
		family = familyIPv4
	}
	b := request(typ, flags, 0, family, 0)
	b = appendTuple(b, attrTupleOrig, &ev.Orig)
	b = appendTuple(b, attrTupleReply, &ev.Reply)
	b = appendAttr32(b, attrID, ev.ID)
	b = appendAttr32(b, attrStatus, ev.Status)
	b = appendAttr32(b, attrTimeout, uint32(ev.Timeout/time.Second))
	b = appendAttr32(b, attrMark, ev.Mark)
	state := func(proto uint16, s uint8) {
		b = appendNest(b, attrProtoinfo, func(b []byte) []byte {
			return appendNest(b, proto, func(b []byte) []byte {
				b = appendAttr(b, attrState, s)
				if proto != attrProtoinfoTCP {
					return b
				}
				b = appendAttr(b, 2, 7) // CTA_PROTOINFO_TCP_WSCALE_ORIGINAL
				b = appendAttr(b, attrTCPFlagsOrig, tcpFlags(ev.ClientCloses), 0)
				return appendAttr(b, attrTCPFlagsReply, tcpFlags(ev.ServerCloses), 0)
			})
		})
	}
	if ev.TCPState != 0 {
		state(attrProtoinfoTCP, ev.TCPState)
	}
	if ev.SCTPState != 0 {
		state(attrProtoinfoSCTP, ev.SCTPState)
	}
	pair := func(typ uint16, first, second uint64) {
		b = appendNest(b, typ, func(b []byte) []byte {
			b = appendAttr(b, 1, binary.BigEndian.AppendUint64(nil, first)...)
			return appendAttr(b, 2, binary.BigEndian.AppendUint64(nil, second)...)
		})
	}
	if ev.Counted {
		pair(attrCountersOrig, ev.PacketsOrig, ev.BytesOrig)
		pair(attrCountersReply, ev.PacketsReply, ev.BytesReply)
	}
	if ev.Start != 0 || ev.Stop != 0 {
		pair(attrTimestamp, uint64(ev.Start), uint64(ev.Stop))
	}
	if ev.At != 0 {
		b = appendAttr(b, attrTimestampEvent, binary.BigEndian.AppendUint64(nil, uint64(ev.At))...)
	}
	return finish(b)
}

// tcpFlags are those of one direction: of those that others read, and of closes.
func tcpFlags(closes bool) byte {
	const windowScale, sackPermitted, closeInit = 0x01, 0x02, 0x04
	if closes {
		return windowScale | sackPermitted | closeInit
	}
	return windowScale | sackPermitted
}

func tupleOf(protocol uint8, src, dst string) flow.Tuple {
	return flow.New(protocol, netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst))
}

// fullEvent has every field set.
func fullEvent() Event {
	return Event{
		Kind:  Destroy,
		Orig:  tupleOf(protoTCP, "198.51.100.7:4711", "192.0.2.10:80"),
		Reply: tupleOf(protoTCP, "10.0.0.2:8080", "198.51.100.7:4711"),
		ID:    0xdeadbeef, Mark: 0x10000300, Status: StatusSeenReply | StatusAssured | StatusConfirmed | StatusDstNAT,
		TCPState: 3, ServerCloses: true, Timeout: 120 * time.Second,
		Start: 1_790_000_000_000_000_001, Stop: 1_790_000_000_000_000_002, At: 1_790_000_000_000_000_003,
		Counted: true, PacketsOrig: 5, BytesOrig: 1 << 40, PacketsReply: 6, BytesReply: 7,
	}
}

// events are events of every kind, protocol and family.
func events() []Event {
	six := Event{
		Kind:  New,
		Orig:  tupleOf(protoUDP, "[2001:db8::7]:4711", "[2001:db8::10]:53"),
		Reply: tupleOf(protoUDP, "[2001:db8:1::2]:53", "[2001:db8::7]:4711"),
		ID:    1, Mark: 0x100, Timeout: 30 * time.Second,
	}
	sctp := Event{
		Kind:  Update,
		Orig:  tupleOf(protoSCTP, "[2001:db8::7]:4711", "[2001:db8::10]:53"),
		Reply: tupleOf(protoSCTP, "[2001:db8:1::2]:53", "[2001:db8::7]:4711"),
		ID:    2, SCTPState: 4,
	}
	return []Event{fullEvent(), six, sctp}
}
