package conntrack

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/flow"
)

// TestDeleteUnbound: no arguments make a message that flushes the table.
func TestDeleteUnbound(t *testing.T) {
	for _, f := range []Filter{
		{}, {Mark: 1}, {Family: familyIPv4}, {Mark: 1, MarkMask: 1, Status: 1, StatusMask: 1},
	} {
		if b, err := flushRequest(1, &f); !errors.Is(err, ErrUnboundFlush) || b != nil {
			t.Errorf("%+v: want %v and no message, got %v, %x", f, ErrUnboundFlush, err, b)
		}
	}
	if b, err := deleteRequest(1, &flow.Tuple{}, 7); !errors.Is(err, ErrUnboundFlush) || b != nil {
		t.Errorf("no flow: want %v and no message, got %v, %x", ErrUnboundFlush, err, b)
	}
}

func TestFilterCheck(t *testing.T) {
	for _, f := range []Filter{
		{Family: 1, MarkMask: 1}, {Mark: 0x101, MarkMask: 0x100}, {Status: 3, StatusMask: 1, MarkMask: 1},
	} {
		if err := f.check(); err == nil {
			t.Errorf("%+v: want an error", f)
		}
		if b, err := flushRequest(1, &f); err == nil || b != nil {
			t.Errorf("%+v: want an error and no message, got %x", f, b)
		}
	}
}

func TestFilterMatch(t *testing.T) {
	ev := Event{Orig: tupleOf(protoTCP, "198.51.100.7:1", "192.0.2.10:80"), Mark: 0x80000300, Status: StatusDstNAT | StatusConfirmed}
	for _, test := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true},
		{Filter{Family: familyIPv4}, true},
		{Filter{Family: familyIPv6}, false},
		{Filter{Mark: 0x300, MarkMask: 0xfffff00}, true},
		{Filter{Mark: 0x200, MarkMask: 0xfffff00}, false},
		{Filter{MarkMask: 0xfffff00}, false},
		{Filter{Status: StatusDstNAT, StatusMask: StatusDstNAT}, true},
		{Filter{StatusMask: StatusDstNAT}, false},
		{Filter{Mark: 0x300, MarkMask: 0xfffff00, Status: StatusAssured, StatusMask: StatusAssured}, false},
	} {
		if got := test.f.match(&ev); got != test.want {
			t.Errorf("%+v: want %v, got %v", test.f, test.want, got)
		}
	}
}

// TestRequests compares with messages written by hand from the kernel's headers,
// on a little-endian machine.
func TestRequests(t *testing.T) {
	if b := request(msgGet, 0, 1, 0, 0); b[8] != 1 {
		t.Skip("written for little-endian machines")
	}
	four := tupleOf(protoTCP, "198.51.100.7:4711", "192.0.2.10:80")
	six := tupleOf(protoUDP, "[2001:db8::7]:1", "[2001:db8::10]:53")
	flush := func(f Filter) []byte {
		b, err := flushRequest(2, &f)
		if err != nil {
			t.Error(err)
		}
		return b
	}
	del := func(tu flow.Tuple, id uint32) []byte {
		b, err := deleteRequest(3, &tu, id)
		if err != nil {
			t.Error(err)
		}
		return b
	}
	for _, test := range []struct {
		name string
		got  []byte
		want string
	}{
		{"dump all", dumpRequest(1, &Filter{}),
			"14000000" + "0101" + "0103" + "01000000" + "00000000" + "00000000"},
		{"dump by mark", dumpRequest(1, &Filter{Family: familyIPv6, Mark: 0x300, MarkMask: 0xfffff00}),
			"24000000" + "0101" + "0103" + "01000000" + "00000000" + "0a000000" +
				"0800" + "0800" + "00000300" + "0800" + "1500" + "0fffff00"},
		{"dump by status", dumpRequest(1, &Filter{Status: StatusDstNAT, StatusMask: StatusDstNAT}),
			"24000000" + "0101" + "0103" + "01000000" + "00000000" + "00000000" +
				"0800" + "0300" + "00000020" + "0800" + "1a00" + "00000020"},
		{"flush by mark", flush(Filter{Family: familyIPv4, MarkMask: 0xfffff00}),
			"24000000" + "0201" + "0500" + "02000000" + "00000000" + "02010000" +
				"0800" + "0800" + "00000000" + "0800" + "1500" + "0fffff00"},
		{"delete a flow", del(four, 0xdeadbeef),
			"50000000" + "0201" + "0500" + "03000000" + "00000000" + "02000000" +
				"3400" + "0180" +
				"1400" + "0180" + "0800" + "0100" + "c6336407" + "0800" + "0200" + "c000020a" +
				"1c00" + "0280" + "0500" + "0100" + "06000000" + "0600" + "0200" + "12670000" + "0600" + "0300" + "00500000" +
				"0800" + "0c00" + "deadbeef"},
		{"delete an IPv6 flow", del(six, 0),
			"60000000" + "0201" + "0500" + "03000000" + "00000000" + "0a000000" +
				"4c00" + "0180" +
				"2c00" + "0180" + "1400" + "0300" + "20010db8000000000000000000000007" +
				"1400" + "0400" + "20010db8000000000000000000000010" +
				"1c00" + "0280" + "0500" + "0100" + "11000000" + "0600" + "0200" + "00010000" + "0600" + "0300" + "00350000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, hex.EncodeToString(test.got)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
