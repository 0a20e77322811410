package nfqueue

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// native returns 32 and 16 bit numbers in the host's order, as netlink has them.
func native32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
func native16(n uint16) []byte { return binary.NativeEndian.AppendUint16(nil, n) }

func cat(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// attr is an attribute with its padding.
func attr(typ uint16, v ...byte) []byte {
	b := cat(native16(uint16(4+len(v))), native16(typ), v)
	return append(b, make([]byte, align(len(b))-len(b))...)
}

// packetMessage is a message of the kernel about a packet of queue 7.
func packetMessage(attrs ...[]byte) []byte {
	body := cat(attrs...)
	return cat(native32(uint32(20+len(body))), native16(0x300), native16(0), native32(0), native32(0),
		[]byte{2, 0, 0, 7}, body)
}

// failureMessage is an NLMSG_ERROR without a copy of the request's body.
func failureMessage(errno int32, seq uint32) []byte {
	return cat(native32(36), native16(2), native16(0x100), native32(seq), native32(4711), native32(uint32(-errno)),
		native32(32), native16(0x301), native16(1), native32(seq), native32(0))
}

// packetHeader is the packet header of id 0x01020304 from the output hook.
var packetHeader = attr(1, 1, 2, 3, 4, 0x08, 0x00, 3)

// TestAppendVerdict has the bytes that the kernel expects: the id goes back in
// network order, as it came.
func TestAppendVerdict(t *testing.T) {
	head := func(n uint32) []byte {
		return cat(native32(n), native16(0x301), native16(1), native32(0x01020304), native32(0), []byte{0, 0, 0x12, 0x34})
	}
	for _, test := range []struct {
		name string
		v    Verdict
		want []byte
	}{
		{"drop", Verdict{}, cat(head(32), attr(2, 0, 0, 0, 0, 1, 2, 3, 4))},
		{"accept", Verdict{Accept: true, Mark: 5}, cat(head(32), attr(2, 0, 0, 0, 1, 1, 2, 3, 4))},
		{
			"mark", Verdict{Accept: true, SetMark: true, Mark: 0xa0b0c0d0},
			cat(head(40), attr(2, 0, 0, 0, 1, 1, 2, 3, 4), attr(3, 0xa0, 0xb0, 0xc0, 0xd0)),
		},
	} {
		got := appendVerdict([]byte("before"), 0x1234, 0x01020304, test.v)
		if want := cat([]byte("before"), test.want); !cmp.Equal(want, got) {
			t.Errorf("%s (-want +got):\n%s", test.name, cmp.Diff(want, got))
		}
		if len(test.want) > verdictLen {
			t.Errorf("%s: %d bytes, verdictLen is %d", test.name, len(test.want), verdictLen)
		}
	}
}

func TestAppendBind(t *testing.T) {
	c := Config{Number: 0x1234, MaxLen: 0x1000, FailOpen: true, GSO: true}.filled()
	want := cat(native32(64), native16(0x302), native16(5), native32(9), native32(0), []byte{0, 0, 0x12, 0x34},
		attr(1, 1, 0, 0, 0),
		attr(2, 0, 0, 0, 128, 2),
		attr(3, 0, 0, 0x10, 0),
		attr(4, 0, 0, 0, 5),
		attr(5, 0, 0, 0, 5))
	if got := appendBind(nil, 9, c.settings()); !cmp.Equal(want, got) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
	if got := (Config{}).filled().settings(); got != (settings{maxLen: 8192, copyRange: 128}) {
		t.Errorf("defaults: %+v", got)
	}
}

func TestAppendUnbind(t *testing.T) {
	want := cat(native32(28), native16(0x302), native16(1), native32(0), native32(0), []byte{0, 0, 0x12, 0x34},
		attr(1, 2, 0, 0, 0))
	if got := appendUnbind(nil, 0x1234); !cmp.Equal(want, got) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
}

func TestDecode(t *testing.T) {
	payload := []byte{0x45, 1, 2, 3, 4, 5}
	packet := Packet{ID: 0x01020304, Hook: 3, Payload: payload, Length: 6}
	marked, cut := packet, packet
	marked.Mark = 0xa0b0c0d0
	cut.Length = 1500
	for _, test := range []struct {
		name string
		b    []byte
		want message
		rest int
		err  error
	}{
		{"packet", packetMessage(packetHeader, attr(10, payload...)), message{kind: kindPacket, packet: packet, hasID: true}, 0, nil},
		{
			"mark", packetMessage(packetHeader, attr(3, 0xa0, 0xb0, 0xc0, 0xd0), attr(10, payload...)),
			message{kind: kindPacket, packet: marked, hasID: true}, 0, nil,
		},
		{
			"cut payload", packetMessage(packetHeader, attr(13, 0, 0, 0x05, 0xdc), attr(10, payload...)),
			message{kind: kindPacket, packet: cut, hasID: true}, 0, nil,
		},
		{
			"unknown attributes", packetMessage(attr(0x7ff, 1), packetHeader, attr(4, 1, 2, 3), attr(0x8000|20), attr(10, payload...)),
			message{kind: kindPacket, packet: packet, hasID: true}, 0, nil,
		},
		{
			"no payload", packetMessage(packetHeader),
			message{kind: kindPacket, packet: Packet{ID: 0x01020304, Hook: 3}, hasID: true}, 0, nil,
		},
		{
			"two messages", cat(packetMessage(packetHeader, attr(10, payload...)), failureMessage(2, 5)),
			message{kind: kindPacket, packet: packet, hasID: true}, 36, nil,
		},
		{"failure", failureMessage(2, 0xfffffff0), message{kind: kindFailure, errno: 2, seq: 0xfffffff0}, 0, nil},
		{"acknowledgement", failureMessage(0, 1), message{kind: kindFailure, seq: 1}, 0, nil},
		{"other type", cat(native32(16), native16(3), make([]byte, 10)), message{}, 0, nil},

		{"empty", nil, message{}, 0, errHeader},
		{"short", make([]byte, 15), message{}, 0, errHeader},
		{"length 0", make([]byte, 40), message{}, 0, errHeader},
		{"length 15", cat(native32(15), make([]byte, 40)), message{}, 0, errHeader},
		{"length beyond all", cat(native32(0xffffffff), native16(0x300), make([]byte, 10)), message{kind: kindPacket}, 0, errLength},
		{"no nfgenmsg", cat(native32(18), native16(0x300), make([]byte, 12)), message{kind: kindPacket}, 0, errHeader},
		{"short failure", cat(native32(20), native16(2), make([]byte, 14)), message{kind: kindFailure}, 0, errFailure},
		{"no packet header", packetMessage(attr(10, payload...)), message{kind: kindPacket, packet: Packet{Payload: payload}}, 0, errNoID},
		{"short packet header", packetMessage(attr(1, 1, 2, 3, 4, 8, 0)), message{kind: kindPacket}, 0, errPacketHeader},
		{
			"short mark", packetMessage(packetHeader, attr(3, 1, 2, 3)),
			message{kind: kindPacket, packet: Packet{ID: 0x01020304, Hook: 3}, hasID: true}, 0, errMark,
		},
		{
			"short cap len", packetMessage(packetHeader, attr(13, 1)),
			message{kind: kindPacket, packet: Packet{ID: 0x01020304, Hook: 3}, hasID: true}, 0, errCapLen,
		},
		{
			"attribute length 3", packetMessage(packetHeader, native16(3), native16(3)),
			message{kind: kindPacket, packet: Packet{ID: 0x01020304, Hook: 3}, hasID: true}, 0, errAttribute,
		},
		{
			"attribute too long", packetMessage(packetHeader, native16(9), native16(3), native32(0)),
			message{kind: kindPacket, packet: Packet{ID: 0x01020304, Hook: 3}, hasID: true}, 0, errAttribute,
		},
		{
			"cut message", packetMessage(packetHeader, attr(10, payload...))[:34],
			message{kind: kindPacket, packet: Packet{ID: 0x01020304, Hook: 3}, hasID: true}, 0, errLength,
		},
	} {
		var m message
		rest, err := m.decode(test.b)
		if !errors.Is(err, test.err) {
			t.Errorf("%s: want error %v, got %v", test.name, test.err, err)
		}
		if len(rest) != test.rest {
			t.Errorf("%s: want %d bytes left, got %d", test.name, test.rest, len(rest))
		}
		if diff := cmp.Diff(test.want, m, cmp.AllowUnexported(message{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestCodecAllocates(t *testing.T) {
	in := packetMessage(packetHeader, attr(3, 1, 2, 3, 4), attr(10, make([]byte, 128)...))
	out := make([]byte, 0, verdictLen)
	var m message
	if n := testing.AllocsPerRun(100, func() {
		if _, err := m.decode(in); err != nil {
			t.Fatal(err)
		}
		out = appendVerdict(out[:0], 7, m.packet.ID, Verdict{Accept: true, SetMark: true, Mark: m.packet.Mark})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzDecode looks for messages that make decode panic, read beyond its input,
// or not come to an end.
func FuzzDecode(f *testing.F) {
	f.Add(packetMessage(packetHeader, attr(13, 0, 0, 5, 0xdc), attr(3, 1, 2, 3, 4), attr(10, 0x45, 0)))
	f.Add(cat(failureMessage(2, 7), packetMessage(packetHeader)))
	f.Add(packetMessage(packetHeader, attr(10, 0x45, 0))[:30])
	f.Add(packetMessage(packetHeader, native16(3), native16(3)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m message
		for rest := b; len(rest) > 0; {
			next, err := m.decode(rest)
			if len(next) >= len(rest) {
				t.Fatalf("decode of %d bytes left %d", len(rest), len(next))
			}
			if err == nil && m.kind == kindPacket && !m.hasID {
				t.Fatal("packet without an ID and without an error")
			}
			if m.packet.Length < 0 || len(m.packet.Payload) > len(rest) {
				t.Fatalf("packet %+v", m.packet)
			}
			rest = next
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	in := packetMessage(packetHeader, attr(3, 1, 2, 3, 4), attr(5, 0, 0, 0, 1), attr(9, make([]byte, 12)...),
		attr(14, 0, 0, 0, 1), attr(10, make([]byte, 60)...))
	out := make([]byte, 0, verdictLen)
	var m message
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.decode(in); err != nil {
			b.Fatal(err)
		}
		out = appendVerdict(out[:0], 7, m.packet.ID, Verdict{Accept: true, SetMark: true, Mark: m.packet.Mark})
	}
}
