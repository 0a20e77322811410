package oracle

import (
	"encoding/hex"
	"net/netip"
	"testing"
)

// TestSegment compares frames with hand-made ones; the checksums of both headers
// sum up to all ones.
func TestSegment(t *testing.T) {
	for _, tt := range []struct{ src, dst, want string }{
		{
			"100.64.0.1:1024", "198.18.1.1:80",
			"02000000ff0102000000ff020800" +
				"450000280000000040064f7c64400001c6120101" +
				"0400005000000001000000005002ffff",
		},
		{
			"[fd64::1]:1024", "[fd18:1::1]:80",
			"02000000ff0102000000ff0286dd" +
				"6000000000140640fd640000000000000000000000000001fd180001000000000000000000000001" +
				"0400005000000001000000005002ffff",
		},
	} {
		f := flow{netip.MustParseAddrPort(tt.src), netip.MustParseAddrPort(tt.dst)}
		b := f.segment(nil, flagSYN)
		got := hex.EncodeToString(b[:len(b)-4])
		if got != tt.want {
			t.Errorf("%s: want %s, got %s", tt.src, tt.want, got)
		}
		at := len(b) - tcpLen
		if sum := checksum(b[at:], pseudo(f.src.Addr(), f.dst.Addr(), protoTCP, tcpLen)); sum != 0 {
			t.Errorf("%s: checksum of the segment is off by %#x", tt.src, sum)
		}
	}
}
