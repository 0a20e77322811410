package nfqueue

import "encoding/binary"

// verdictLen is the length of an encoded verdict with a mark.
const verdictLen = headerLen + nfHeaderLen + attrLen + 8 + attrLen + 4

// appendVerdict appends a verdict on packet id. The message's sequence number is
// the id, so that an answer to it names the packet. No acknowledgement is asked
// for; the kernel answers what fails nevertheless.
func appendVerdict(b []byte, queue uint16, id uint32, v Verdict) []byte {
	n := verdictLen
	if !v.SetMark {
		n -= attrLen + 4
	}
	b = appendHeader(b, n, typeVerdict, flagRequest, id, queue)
	code := uint32(verdictDrop)
	if v.Accept {
		code = verdictAccept
	}
	b = appendAttr(b, attrVerdictHeader, 8)
	b = binary.BigEndian.AppendUint32(b, code)
	b = binary.BigEndian.AppendUint32(b, id)
	if v.SetMark {
		b = appendUint32(b, attrMark, v.Mark)
	}
	return b
}

// settings are what a queue is bound with.
type settings struct {
	queue     uint16
	maxLen    uint32
	copyRange uint32
	flags     uint32
}

// appendBind appends the request that binds a queue, with all its settings and
// an acknowledgement. One message, since the kernel drops the packets of a queue
// that is bound but has no copy mode yet.
func appendBind(b []byte, seq uint32, s settings) []byte {
	const n = headerLen + nfHeaderLen + (attrLen + 4) + (attrLen + 8) + 3*(attrLen+4)
	b = appendHeader(b, n, typeConfig, flagRequest|flagAck, seq, s.queue)
	b = appendAttr(b, attrConfigCommand, 4)
	b = append(b, commandBind, 0, 0, 0)
	b = appendAttr(b, attrConfigParams, 5)
	b = binary.BigEndian.AppendUint32(b, s.copyRange)
	b = append(b, copyPacket, 0, 0, 0)
	b = appendUint32(b, attrConfigMaxLen, s.maxLen)
	b = appendUint32(b, attrConfigMask, configFailOpen|configGSO)
	return appendUint32(b, attrConfigFlags, s.flags)
}

// appendUnbind appends the request that gives a queue back, without an
// acknowledgement.
func appendUnbind(b []byte, queue uint16) []byte {
	b = appendHeader(b, headerLen+nfHeaderLen+attrLen+4, typeConfig, flagRequest, 0, queue)
	b = appendAttr(b, attrConfigCommand, 4)
	return append(b, commandUnbind, 0, 0, 0)
}

// appendHeader appends the headers of a message of n bytes.
func appendHeader(b []byte, n int, typ, flags uint16, seq uint32, queue uint16) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(n))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = append(b, 0, 0, 0, 0) // port: the kernel knows it
	b = append(b, 0, 0)       // AF_UNSPEC, NFNETLINK_V0
	return binary.BigEndian.AppendUint16(b, queue)
}

// appendAttr appends the header of an attribute of n bytes.
func appendAttr(b []byte, typ uint16, n int) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrLen+n))
	return binary.NativeEndian.AppendUint16(b, typ)
}

func appendUint32(b []byte, typ uint16, v uint32) []byte {
	return binary.BigEndian.AppendUint32(appendAttr(b, typ, 4), v)
}
