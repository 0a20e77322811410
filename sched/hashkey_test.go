package sched

import (
	"net/netip"
	"testing"
)

// TestSip13 checks against the vectors of the kernel (lib/siphash_kunit.c): the
// bytes 00 01 02 03 under the key 00 … 0f.
func TestSip13(t *testing.T) {
	const want = 0x88d38328
	if got := sip13(0x0706050403020100, 0x0f0e0d0c0b0a0908, 0x03020100); got != want {
		t.Errorf("sip13 = %#x, want %#x", got, want)
	}
}

func TestFold(t *testing.T) {
	for _, tt := range []struct {
		addr string
		want uint32
	}{
		{"0.0.0.0", 0},
		{"10.1.2.3", 0x0a010203},
		{"255.255.255.255", 0xffffffff},
		{"::", 0},
		{"2001:db8::1", 0x20010db8 ^ 1},
		{"1:2:3:4:5:6:7:8", 0x00010002 ^ 0x00030004 ^ 0x00050006 ^ 0x00070008},
	} {
		if got := fold(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("fold(%s) = %#x, want %#x", tt.addr, got, tt.want)
		}
	}
	if got := fold(netip.Addr{}); got != 0 {
		t.Errorf("fold of no address = %#x, want 0", got)
	}
}

// TestHash32 checks hand-worked products: 0x61C88647 is 1640531527, its top
// eight bits are 0x61; twice it begins with 0xC3.
func TestHash32(t *testing.T) {
	for _, tt := range []struct {
		v    uint32
		n    uint
		want uint32
	}{
		{0, 8, 0},
		{1, 8, 0x61},
		{2, 8, 0xc3},
		{1, 10, 0x61C88647 >> 22},
		{0x0a000001, 8, 0x27}, // 0x0a000000 * 0x61C88647 = 0x…c6000000
	} {
		if got := hash32(tt.v, tt.n); got != tt.want {
			t.Errorf("hash32(%#x, %d) = %#x, want %#x", tt.v, tt.n, got, tt.want)
		}
	}
}
