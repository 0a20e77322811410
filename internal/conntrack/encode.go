package conntrack

import (
	"encoding/binary"

	"github.com/lbd-project/lbd/internal/flow"
)

// request starts a message with room for its header. version 1 of the nfgenmsg
// makes a flush mind the family (Linux 5.3, nf_conntrack_netlink.c,
// ctnetlink_del_conntrack); other commands do not look at it.
func request(typ, flags uint16, seq uint32, family, version uint8) []byte {
	b := make([]byte, nlmsgHeaderLen+nfgenmsgLen, 128)
	binary.NativeEndian.PutUint16(b[4:], typ)
	binary.NativeEndian.PutUint16(b[6:], flags|flagRequest)
	binary.NativeEndian.PutUint32(b[8:], seq)
	b[nlmsgHeaderLen], b[nlmsgHeaderLen+1] = family, version
	return b
}

// finish writes the length of a message.
func finish(b []byte) []byte {
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

// appendAttr appends an attribute, padded.
func appendAttr(b []byte, typ uint16, value ...byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHeaderLen+len(value)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, value...)
	return append(b, make([]byte, align(len(b))-len(b))...)
}

func appendAttr16(b []byte, typ, v uint16) []byte {
	return appendAttr(b, typ, byte(v>>8), byte(v))
}

func appendAttr32(b []byte, typ uint16, v uint32) []byte {
	return appendAttr(b, typ, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

// appendNest appends an attribute that holds what fill appends.
func appendNest(b []byte, typ uint16, fill func([]byte) []byte) []byte {
	start := len(b)
	b = fill(append(b, 0, 0, 0, 0))
	binary.NativeEndian.PutUint16(b[start:], uint16(len(b)-start))
	binary.NativeEndian.PutUint16(b[start+2:], typ|attrNested)
	return b
}

// appendTuple appends a tuple as CTA_TUPLE_ORIG or CTA_TUPLE_REPLY.
func appendTuple(b []byte, typ uint16, t *flow.Tuple) []byte {
	src, dst := uint16(attrIPv6Src), uint16(attrIPv6Dst)
	if t.Is4() {
		src, dst = attrIPv4Src, attrIPv4Dst
	}
	return appendNest(b, typ, func(b []byte) []byte {
		b = appendNest(b, attrTupleIP, func(b []byte) []byte {
			b = appendAttr(b, src, t.Src().AsSlice()...)
			return appendAttr(b, dst, t.Dst().AsSlice()...)
		})
		return appendNest(b, attrTupleProto, func(b []byte) []byte {
			b = appendAttr(b, attrProtoNum, t.Protocol)
			b = appendAttr16(b, attrProtoSrcPort, t.SrcPort)
			return appendAttr16(b, attrProtoDstPort, t.DstPort)
		})
	})
}
