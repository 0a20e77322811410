package conntrack

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/flow"
)

var compareTuples = cmp.Comparer(func(a, b flow.Tuple) bool { return a == b })

// decodeOne decodes the first message of a datagram.
func decodeOne(b []byte) (ev Event, ok bool, err error) {
	m, _, err := nextMessage(b)
	if err != nil {
		return ev, false, err
	}
	ok, err = decodeEvent(&m, &ev)
	return ev, ok, err
}

func TestDecode(t *testing.T) {
	for _, want := range events() {
		t.Run(want.Orig.String(), func(t *testing.T) {
			got, ok, err := decodeOne(build(&want))
			if !ok || err != nil {
				t.Fatalf("want an event, got %v, %v", ok, err)
			}
			if diff := cmp.Diff(want, got, compareTuples); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestDecodeMinimal leaves out what the kernel may leave out.
func TestDecodeMinimal(t *testing.T) {
	full := fullEvent()
	want := Event{Kind: Update, Orig: full.Orig, Reply: full.Reply}
	b := request(msgNew, 0, 0, familyIPv4, 0)
	b = appendTuple(b, attrTupleOrig, &full.Orig)
	b = finish(appendTuple(b, attrTupleReply, &full.Reply))
	got, ok, err := decodeOne(b)
	if !ok || err != nil {
		t.Fatalf("want an event, got %v, %v", ok, err)
	}
	if diff := cmp.Diff(want, got, compareTuples); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestDecodeOneDirection has counters of one direction only: they are not to be
// taken for a flow without answers.
func TestDecodeOneDirection(t *testing.T) {
	ev := fullEvent()
	ev.Counted = false
	b := appendNest(build(&ev), attrCountersOrig, func(b []byte) []byte {
		return appendAttr(b, attrPackets, 0, 0, 0, 0, 0, 0, 0, 9)
	})
	got, ok, err := decodeOne(finish(b))
	if !ok || err != nil || got.Counted || got.PacketsOrig != 9 {
		t.Errorf("want an event that is not counted, got %+v, %v, %v", got, ok, err)
	}
}

// raw is a tuple from parts that may be wrong.
func raw(typ uint16, ip, proto []byte) []byte {
	return appendNest(nil, typ, func(b []byte) []byte {
		b = append(b, ip...)
		return append(b, proto...)
	})
}

func TestDecodeSkipped(t *testing.T) {
	ip := func(protocol uint8) []byte {
		ip4 := appendNest(nil, attrTupleIP, func(b []byte) []byte {
			return appendAttr(appendAttr(b, attrIPv4Src, 1, 2, 3, 4), attrIPv4Dst, 5, 6, 7, 8)
		})
		proto := appendNest(nil, attrTupleProto, func(b []byte) []byte {
			b = appendAttr(b, attrProtoNum, protocol)
			b = appendAttr16(b, 4, 77) // CTA_PROTO_ICMP_ID
			return appendAttr(b, 5, 8) // CTA_PROTO_ICMP_TYPE
		})
		return append(raw(attrTupleOrig, ip4, proto), raw(attrTupleReply, ip4, proto)...)
	}
	ev := fullEvent()
	for _, test := range []struct {
		name string
		msg  []byte
	}{
		{"icmp", append(request(msgNew, 0, 0, familyIPv4, 0), ip(1)...)},
		{"gre", append(request(msgNew, 0, 0, familyIPv4, 0), ip(47)...)},
		{"unknown protocol", append(request(msgNew, 0, 0, familyIPv4, 0), ip(0)...)},
		{"zone", appendAttr16(build(&ev), attrZone, 5)},
		{"zone of one direction", append(build(&ev),
			raw(attrTupleOrig, appendAttr16(nil, attrTupleZone, 5), nil)...)},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, ok, err := decodeOne(finish(test.msg)); ok || err != nil {
				t.Errorf("want it skipped, got %v, %v", ok, err)
			}
		})
	}
	if _, ok, err := decodeOne(finish(appendAttr16(build(&ev), attrZone, 0))); !ok || err != nil {
		t.Errorf("the default zone: want an event, got %v, %v", ok, err)
	}
}

func TestDecodeMalformed(t *testing.T) {
	ev := fullEvent()
	with := func(typ uint16, v ...byte) []byte { return appendAttr(build(&ev), typ, v...) }
	only := func(parts ...[]byte) []byte {
		b := request(msgNew, 0, 0, familyIPv4, 0)
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	nest := func(typ uint16, v ...byte) []byte {
		return appendNest(nil, typ, func(b []byte) []byte { return append(b, v...) })
	}
	v4 := nest(attrTupleIP, appendAttr(appendAttr(nil, attrIPv4Src, 1, 2, 3, 4), attrIPv4Dst, 5, 6, 7, 8)...)
	v6 := nest(attrTupleIP, appendAttr(appendAttr(nil, attrIPv6Src, make([]byte, 16)...), attrIPv6Dst, make([]byte, 16)...)...)
	half := nest(attrTupleIP, appendAttr(nil, attrIPv4Src, 1, 2, 3, 4)...)
	ports := appendAttr16(appendAttr16(nil, attrProtoSrcPort, 1), attrProtoDstPort, 2)
	tcp := nest(attrTupleProto, append(appendAttr(nil, attrProtoNum, protoTCP), ports...)...)
	udp := nest(attrTupleProto, append(appendAttr(nil, attrProtoNum, protoUDP), ports...)...)
	bare := nest(attrTupleProto, appendAttr(nil, attrProtoNum, protoTCP)...)
	for _, test := range []struct {
		name string
		msg  []byte
	}{
		{"no nfgenmsg", make([]byte, nlmsgHeaderLen)},
		{"short TCP flags", with(attrProtoinfo, nest(attrProtoinfoTCP, appendAttr(nil, attrTCPFlagsOrig, 4)...)...)},
		{"nothing", only()},
		{"no reply", only(raw(attrTupleOrig, v4, tcp))},
		{"no origin", only(raw(attrTupleReply, v4, tcp))},
		{"no protocol", only(raw(attrTupleOrig, v4, nil), raw(attrTupleReply, v4, tcp))},
		{"no ports", only(raw(attrTupleOrig, v4, bare), raw(attrTupleReply, v4, tcp))},
		{"no destination", only(raw(attrTupleOrig, half, tcp), raw(attrTupleReply, half, tcp))},
		{"both families in one", only(raw(attrTupleOrig, append(v4[:len(v4):len(v4)], v6...), tcp), raw(attrTupleReply, v4, tcp))},
		{"families that differ", only(raw(attrTupleOrig, v4, tcp), raw(attrTupleReply, v6, tcp))},
		{"protocols that differ", only(raw(attrTupleOrig, v4, tcp), raw(attrTupleReply, v4, udp))},
		{"short address", only(raw(attrTupleOrig, nest(attrTupleIP, appendAttr(nil, attrIPv4Src, 1, 2, 3)...), tcp))},
		{"long port", only(raw(attrTupleOrig, v4, nest(attrTupleProto, appendAttr(nil, attrProtoSrcPort, 1, 2, 3)...)))},
		{"short mark", with(attrMark, 1, 2)},
		{"long status", with(attrStatus, 1, 2, 3, 4, 5)},
		{"short id", with(attrID)},
		{"short timeout", with(attrTimeout, 1)},
		{"short zone", with(attrZone, 1)},
		{"short counter", with(attrCountersOrig, appendAttr(nil, attrBytes, 1, 2, 3, 4)...)},
		{"short timestamp", with(attrTimestamp, appendAttr(nil, attrStart, 1)...)},
		{"short time of the event", with(attrTimestampEvent, 1)},
		{"long state", with(attrProtoinfo, appendAttr(nil, attrProtoinfoTCP, appendAttr(nil, attrState, 1, 2)...)...)},
		{"half an attribute", append(build(&ev), 1, 2)},
		{"attribute beyond the end", append(build(&ev), 9, 0, attrMark, 0, 1, 2, 3, 4)},
		{"attribute shorter than its header", append(build(&ev), 3, 0, attrMark, 0)},
		{"nested attribute beyond its parent", with(attrProtoinfo, 12, 0, attrProtoinfoTCP, 0)},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, ok, err := decodeOne(finish(test.msg))
			if ok || !errors.Is(err, errMalformed) {
				t.Errorf("want %v, got %v, %v", errMalformed, ok, err)
			}
		})
	}
}

// TestDecodeUnknown adds attributes of later kernels, on each level.
func TestDecodeUnknown(t *testing.T) {
	want := fullEvent()
	b := appendAttr(build(&want), 99, 1, 2, 3)
	b = appendNest(b, attrProtoinfo, func(b []byte) []byte { return appendAttr(b, 44, 1) })
	b = appendNest(b, attrTupleOrig, func(b []byte) []byte {
		b = appendNest(b, attrTupleIP, func(b []byte) []byte { return appendAttr(b, 9, 1) })
		return appendAttr(b, 12, 1, 2)
	})
	got, ok, err := decodeOne(finish(b))
	if !ok || err != nil {
		t.Fatalf("want an event, got %v, %v", ok, err)
	}
	if diff := cmp.Diff(want, got, compareTuples); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDecodeAllocates(t *testing.T) {
	full := fullEvent()
	b := build(&full)
	var s scanner
	handle := func(*Event) {}
	if n := testing.AllocsPerRun(100, func() { s.scan(b, handle) }); n != 0 {
		t.Errorf("%v allocations an event", n)
	}
	if s.stats.Events == 0 {
		t.Error("no event was decoded")
	}
}

func BenchmarkDecode(b *testing.B) {
	full := fullEvent()
	msg := build(&full)
	var s scanner
	b.ReportAllocs()
	for b.Loop() {
		s.scan(msg, func(*Event) {})
	}
}

// FuzzScan: no bytes make the decoders panic, read over the end or loop, and an
// event that decodes is the same after it was built again.
func FuzzScan(f *testing.F) {
	for _, ev := range events() {
		f.Add(build(&ev))
	}
	full := fullEvent()
	f.Add(append(build(&full), build(&full)...))
	f.Add(build(&full)[:77])
	f.Fuzz(func(t *testing.T, b []byte) {
		var s scanner
		s.scan(b, func(ev *Event) {
			want := *ev
			if !want.Counted {
				want.PacketsOrig, want.BytesOrig, want.PacketsReply, want.BytesReply = 0, 0, 0, 0
			}
			got, ok, err := decodeOne(build(&want))
			if !ok || err != nil {
				t.Fatalf("built again: %v, %v", ok, err)
			}
			if diff := cmp.Diff(want, got, compareTuples); diff != "" {
				t.Errorf("built again (-want +got)\n%s", diff)
			}
		})
		var st Stats
		m, _, err := nextMessage(b)
		if err == nil {
			_ = st.addCPU(&m)
			_ = st.setGlobal(&m)
			_ = m.errno()
		}
	})
}
