package tunnel

import (
	"encoding/hex"
	"net/netip"
	"testing"
)

func TestHeader(t *testing.T) {
	for _, test := range []struct {
		src, dst string
		inner6   bool
		// want is the header, in hexadecimal; size and what is inside follow.
		want       string
		size, four byte
	}{
		{"192.0.2.1", "198.51.100.2", false, "45000000000040004029" + "0000" + "c0000201" + "c6336402", 20, 1},
		{"192.0.2.1", "198.51.100.2", true, "45000000000040004029" + "0000" + "c0000201" + "c6336402", 20, 0},
		{"2001:db8::1", "2001:db8::2", false, "6000000000002940" +
			"20010db8000000000000000000000001" + "20010db8000000000000000000000002", 40, 1},
	} {
		b := header(netip.MustParseAddr(test.src), netip.MustParseAddr(test.dst), test.inner6)
		if got := hex.EncodeToString(b[:test.size]); got != test.want {
			t.Errorf("%s to %s: want %s, got %s", test.src, test.dst, test.want, got)
		}
		if b[offSize]+b[offSize+3] != test.size || b[offFour]+b[offFour+3] != test.four {
			t.Errorf("%s to %s: size and contents: % x", test.src, test.dst, b[headerSize:])
		}
	}
}
