package packet

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/flow"
)

var (
	client4 = netip.MustParseAddr("198.51.100.7")
	vip4    = netip.MustParseAddr("192.0.2.10")
	client6 = netip.MustParseAddr("2001:db8::7")
	vip6    = netip.MustParseAddr("2001:db8::10")
)

// ip4 is an IPv4 packet with options, and with fragment as flags and offset.
func ip4(protocol uint8, fragment uint16, options, payload []byte) []byte {
	b := make([]byte, 20, 20+len(options)+len(payload))
	b[0] = 4<<4 | uint8(20+len(options))/4
	binary.BigEndian.PutUint16(b[2:], uint16(cap(b)))
	binary.BigEndian.PutUint16(b[6:], fragment)
	b[8], b[9] = 64, protocol
	copy(b[12:], client4.AsSlice())
	copy(b[16:], vip4.AsSlice())
	return append(append(b, options...), payload...)
}

// ip6 is an IPv6 packet; payload begins with an extension header of type next, or
// with the transport header.
func ip6(next uint8, payload ...byte) []byte {
	b := make([]byte, 40, 40+len(payload))
	b[0] = 6 << 4
	binary.BigEndian.PutUint16(b[4:], uint16(len(payload)))
	b[6], b[7] = next, 64
	copy(b[8:], client6.AsSlice())
	copy(b[24:], vip6.AsSlice())
	return append(b, payload...)
}

// extension is an extension header of 8 octets and more, filled up with data.
func extension(next uint8, more uint8, data ...byte) []byte {
	b := make([]byte, 8+8*int(more))
	b[0], b[1] = next, more
	copy(b[2:], data)
	return b
}

// fragment6 is a fragment header; offset is in octets.
func fragment6(next uint8, offset uint16, more bool) []byte {
	b := []byte{next, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef}
	binary.BigEndian.PutUint16(b[2:], offset)
	if more {
		b[3] |= 1
	}
	return b
}

const (
	fin = 1 << iota
	syn
	rst
	_
	ack
)

func tcp(flags uint8, options ...byte) []byte {
	b := make([]byte, 20+len(options))
	copy(b, ports)
	binary.BigEndian.PutUint32(b[4:], 0xa0b0c0d0)
	b[12], b[13] = uint8(len(b))/4<<4, flags
	copy(b[20:], options)
	return b
}

func udp(length uint16, payload ...byte) []byte {
	return append(append(slices.Clone(ports), uint8(length>>8), uint8(length), 0, 0), payload...)
}

func sctp(chunk ...byte) []byte {
	return append(append(slices.Clone(ports), 0, 0, 0, 0, 0, 0, 0, 0), chunk...)
}

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

var (
	ports      = []byte{0x12, 0x67, 0, 80} // 4711 to 80
	synOptions = []byte{2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7}
	initChunk  = []byte{1, 0, 0, 20, 0xa0, 0xb0, 0xc0, 0xd0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 1}
)

func tuple(protocol uint8, port bool, four bool) flow.Tuple {
	src, dst := client6, vip6
	if four {
		src, dst = client4, vip4
	}
	var sport, dport uint16
	if port {
		sport, dport = 4711, 80
	}
	return flow.New(protocol, netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport))
}

func with4(protocol uint8, in Info) Info {
	in.Tuple = tuple(protocol, true, true)
	return in
}

func with6(protocol uint8, in Info) Info {
	in.Tuple = tuple(protocol, true, false)
	return in
}

// damaged is b after f changed it.
func damaged(b []byte, f func(b []byte)) []byte {
	f(b)
	return b
}

type parseCase struct {
	name string
	b    []byte
	want Info
	err  error
}

const seq = 0xa0b0c0d0

func goodCases() []parseCase {
	mtu := make([]byte, 1400)
	frag4, frag6 := Info{Tuple: tuple(17, false, true), Fragment: true}, Info{Tuple: tuple(17, false, false), Fragment: true}
	return []parseCase{
		{"SYN", ip4(6, 0x4000, nil, tcp(syn, synOptions...)), with4(6, Info{SYN: true, Seq: seq}), nil},
		{"SYN ACK", ip4(6, 0, nil, tcp(syn|ack)), with4(6, Info{SYN: true, ACK: true, Seq: seq}), nil},
		{"FIN ACK", ip4(6, 0, nil, tcp(fin|ack)), with4(6, Info{FIN: true, ACK: true, Seq: seq}), nil},
		{"RST", ip4(6, 0, nil, tcp(rst)), with4(6, Info{RST: true, Seq: seq}), nil},
		{"evil bit and reserved TCP bits", ip4(6, 0x8000, nil, damaged(tcp(syn|0xe0), func(b []byte) { b[12] |= 0xf })), with4(6, Info{SYN: true, Seq: seq}), nil},
		{"IPv4 options", ip4(6, 0, slices.Repeat([]byte{1}, 40), tcp(syn)), with4(6, Info{SYN: true, Seq: seq}), nil},
		{"malformed IPv4 options", ip4(6, 0, []byte{7, 0, 0, 0}, tcp(syn)), with4(6, Info{SYN: true, Seq: seq}), nil},
		{"malformed TCP options", ip4(6, 0, nil, tcp(syn, 2, 0, 8, 255)), with4(6, Info{SYN: true, Seq: seq}), nil},
		{"padded frame", join(ip4(6, 0, nil, tcp(syn)), make([]byte, 6)), with4(6, Info{SYN: true, Seq: seq}), nil},
		{"total length 0 of a large packet", damaged(ip4(6, 0, nil, join(tcp(ack), mtu)), func(b []byte) { b[2], b[3] = 0, 0 }), with4(6, Info{ACK: true, Seq: seq}), nil},
		{"cut at 128", ip4(6, 0, slices.Repeat([]byte{1}, 40), join(tcp(syn, slices.Repeat([]byte{1}, 40)...), mtu))[:128], with4(6, Info{SYN: true, Seq: seq}), nil},
		{"TCP options cut", ip4(6, 0, nil, tcp(syn, synOptions...))[:40], with4(6, Info{SYN: true, Seq: seq}), nil},
		{"UDP", ip4(17, 0, nil, udp(9, 1)), with4(17, Info{}), nil},
		{"UDP cut", ip4(17, 0, nil, udp(1408, mtu...))[:28], with4(17, Info{}), nil},
		{"first fragment", ip4(17, 0x2000, nil, udp(4008, mtu...)), with4(17, Info{}), nil},
		{"middle fragment", ip4(17, 0x2000|185, nil, udp(80)), frag4, nil},
		{"last fragment", ip4(17, 370, nil, []byte{1}), frag4, nil},
		{"ICMP", ip4(1, 0, nil, []byte{8, 0}), Info{Tuple: tuple(1, false, true)}, nil},
		{"SCTP INIT", ip4(132, 0, nil, sctp(initChunk...)), with4(132, Info{Init: true, Seq: seq}), nil},
		{"SCTP INIT cut behind its tag", ip4(132, 0, nil, sctp(initChunk...))[:40], with4(132, Info{Init: true, Seq: seq}), nil},
		{"SCTP DATA", ip4(132, 0, nil, sctp(0, 3, 0, 17, 1, 2, 3, 4)), with4(132, Info{}), nil},

		{"IPv6 SYN", ip6(6, tcp(syn, synOptions...)...), with6(6, Info{SYN: true, Seq: seq}), nil},
		{"IPv6 UDP", ip6(17, udp(8)...), with6(17, Info{}), nil},
		{"IPv6 SCTP", ip6(132, sctp(initChunk...)...), with6(132, Info{Init: true, Seq: seq}), nil},
		{"IPv6 padded frame", join(ip6(17, udp(8)...), make([]byte, 6)), with6(17, Info{}), nil},
		{"jumbogram", damaged(ip6(0, join(extension(6, 0, 0xc2, 4, 0, 1, 0, 0), tcp(ack), mtu)...), func(b []byte) { b[4], b[5] = 0, 0 }), with6(6, Info{ACK: true, Seq: seq}), nil},
		{"hop-by-hop, of Pad1 only", ip6(0, join(extension(6, 3), tcp(syn))...), with6(6, Info{SYN: true, Seq: seq}), nil},
		{"hop-by-hop, damaged", ip6(0, join(extension(6, 0, 5, 200), tcp(syn))...), with6(6, Info{SYN: true, Seq: seq}), nil},
		{
			"every extension header", ip6(0, join(extension(60, 0), extension(43, 0), extension(44, 1), fragment6(51, 0, false),
				[]byte{60, 4}, make([]byte, 22), extension(135, 0), extension(139, 0), extension(140, 0), extension(17, 0), udp(8))...),
			with6(17, Info{}), nil,
		},
		{"first IPv6 fragment", ip6(44, join(fragment6(17, 0, true), udp(4008, mtu...))...), with6(17, Info{}), nil},
		{"second IPv6 fragment", ip6(44, join(fragment6(17, 1448, true), udp(80))...), frag6, nil},
		{"IPv6 fragment at offset 8", ip6(44, join(fragment6(17, 8, true), udp(80))...), frag6, nil},
		{"last IPv6 fragment, of 1 octet", ip6(44, join(fragment6(17, 2896, false), []byte{1})...), frag6, nil},
		{"later IPv6 fragment of a packet with options", ip6(0, join(extension(44, 0), fragment6(60, 1448, false), []byte{17})...), Info{Tuple: tuple(60, false, false), Fragment: true}, nil},
		{"no next header", ip6(59), Info{Tuple: tuple(59, false, false)}, nil},
		{"ESP", ip6(50, 1, 2, 3), Info{Tuple: tuple(50, false, false)}, nil},
		{"ICMPv6", ip6(58, 128, 0), Info{Tuple: tuple(58, false, false)}, nil},
	}
}

func badCases() []parseCase {
	t4, t6 := Info{Tuple: tuple(6, false, true)}, Info{Tuple: tuple(6, false, false)}
	u4, u6, s4 := Info{Tuple: tuple(17, false, true)}, Info{Tuple: tuple(17, false, false)}, Info{Tuple: tuple(132, false, true)}
	hop := Info{Tuple: tuple(0, false, false)}
	syn4 := func() []byte { return ip4(6, 0, nil, tcp(syn)) }
	return []parseCase{
		{"empty", nil, Info{}, errEmpty},
		{"version 0", make([]byte, 60), Info{}, errVersion},
		{"version 5", damaged(syn4(), func(b []byte) { b[0] = 5<<4 | 5 }), Info{}, errVersion},
		{"short IPv4", syn4()[:19], Info{}, errShort4},
		{"IHL 4", damaged(syn4(), func(b []byte) { b[0] = 4<<4 | 4 }), Info{}, errHeaderLen4},
		{"IHL beyond the total length", damaged(syn4(), func(b []byte) { b[0], b[3] = 4<<4|15, 59 }), t4, errTotalLen4},
		{"IHL beyond the buffer", damaged(syn4(), func(b []byte) { b[0], b[3] = 4<<4|15, 60 }), t4, errShort4},
		{"total length 19", damaged(syn4(), func(b []byte) { b[3] = 19 }), Info{}, errTotalLen4},
		{"total length ends within TCP", damaged(syn4(), func(b []byte) { b[3] = 39 }), t4, errShortTCP},
		{"cut within TCP", syn4()[:39], t4, errShortTCP},
		{"TCP offset 4", ip4(6, 0, nil, damaged(tcp(syn), func(b []byte) { b[12] = 4 << 4 })), t4, errOffsetTCP},
		{"TCP offset beyond the packet", ip4(6, 0, nil, damaged(tcp(syn), func(b []byte) { b[12] = 6 << 4 })), t4, errOffsetTCP},
		{"UDP of 7 octets", ip4(17, 0, nil, udp(8)[:7]), u4, errShortUDP},
		{"UDP length 7", ip4(17, 0, nil, udp(7)), u4, errLengthUDP},
		{"SCTP of 11 octets", ip4(132, 0, nil, sctp()[:11]), s4, errShortSCTP},
		{"SCTP without a chunk", ip4(132, 0, nil, sctp()), with4(132, Info{}), errShortChunk},
		{"SCTP INIT without a tag", ip4(132, 0, nil, sctp(initChunk[:7]...)), with4(132, Info{}), errShortChunk},
		{"SCTP INIT too short", ip4(132, 0, nil, damaged(sctp(initChunk...), func(b []byte) { b[15] = 19 })), with4(132, Info{}), errChunkInvalid},

		{"short IPv6", ip6(6)[:39], Info{}, errShort6},
		{"IPv6 without its TCP", ip6(6), t6, errShortTCP},
		{"payload length ends within UDP", damaged(ip6(17, udp(8)...), func(b []byte) { b[5] = 7 }), u6, errShortUDP},
		{"hop-by-hop of 7 octets", ip6(0, make([]byte, 7)...), hop, errExtension},
		{"hop-by-hop beyond the packet", ip6(0, extension(6, 0)[0], 1, 0, 0, 0, 0, 0, 0), hop, errExtension},
		{"hop-by-hop for ever", ip6(0, make([]byte, 128)...), hop, errExtension},
		{"fragment headers for ever", ip6(44, slices.Repeat(fragment6(44, 0, true), 16)...), Info{Tuple: tuple(44, false, false)}, errExtension},
		{"AH for ever", ip6(51, slices.Repeat([]byte{51, 0, 0, 0, 0, 0, 0, 0}, 16)...), Info{Tuple: tuple(51, false, false)}, errExtension},
		{"AH beyond the packet", ip6(51, 6, 255, 0, 0, 0, 0, 0, 0), Info{Tuple: tuple(51, false, false)}, errExtension},
	}
}

// TestParse reads all packets with one parser: nothing of one stays for the next.
func TestParse(t *testing.T) {
	var p Parser
	for _, test := range append(goodCases(), badCases()...) {
		got := Info{SYN: true, Fragment: true, Seq: 1, Init: true}
		before := slices.Clone(test.b)
		err := p.Parse(test.b, &got)
		if !errors.Is(err, test.err) {
			t.Errorf("%s: want error %v, got %v", test.name, test.err, err)
		}
		if got != test.want {
			t.Errorf("%s:\nwant %v %+v\ngot  %v %+v", test.name, test.want.Tuple, test.want, got.Tuple, got)
		}
		if !cmp.Equal(before, test.b) {
			t.Errorf("%s: the packet was changed", test.name)
		}
	}
}

// TestParseReordered has the fragments of one datagram in every order: only the
// first has ports, wherever it comes.
func TestParseReordered(t *testing.T) {
	data := udp(4008, make([]byte, 4000)...)
	for _, version := range []int{4, 6} {
		var frags [][]byte
		for off := 0; off < len(data); off += 1448 {
			end := min(off+1448, len(data))
			more := end < len(data)
			if version == 6 {
				frags = append(frags, ip6(44, join(fragment6(17, uint16(off), more), data[off:end])...))
				continue
			}
			bits := uint16(off / 8)
			if more {
				bits |= 0x2000
			}
			frags = append(frags, ip4(17, bits, nil, data[off:end]))
		}
		var p Parser
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			for _, i := range order {
				want := Info{Tuple: tuple(17, i == 0, version == 4), Fragment: i != 0}
				var got Info
				if err := p.Parse(frags[i], &got); err != nil || got != want {
					t.Errorf("IPv%d, order %v, fragment %d: want %+v, got %+v, %v", version, order, i, want, got, err)
				}
			}
		}
	}
}

// TestParseSCTPClients has two clients with the same ports, as SCTP peers often
// have: their tuples differ (Nordix/nfqueue-loadbalancer#19).
func TestParseSCTPClients(t *testing.T) {
	one := ip4(132, 0, nil, sctp(initChunk...))
	two := slices.Clone(one)
	two[15]++
	var p Parser
	var a, b Info
	if err := errors.Join(p.Parse(one, &a), p.Parse(two, &b)); err != nil {
		t.Fatal(err)
	}
	if a.Tuple == b.Tuple || a.Tuple.Hash(1) == b.Tuple.Hash(1) {
		t.Errorf("one tuple for two clients: %v", a.Tuple)
	}
}

// TestParseAllocates includes the packets that are damaged: they must not cost
// more than others either.
func TestParseAllocates(t *testing.T) {
	var p Parser
	var in Info
	for _, test := range append(goodCases(), badCases()...) {
		if n := testing.AllocsPerRun(10, func() { p.Parse(test.b, &in) }); n != 0 {
			t.Errorf("%s: %v allocations", test.name, n)
		}
	}
}
