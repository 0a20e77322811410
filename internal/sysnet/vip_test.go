package sysnet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
)

// attr is an attribute of a message, padded.
func attr(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, -len(b)&3)...)
}

// address is an RTM_NEWADDR message of interface 7.
func address(bits byte, attrs ...[]byte) []byte {
	b := binary.NativeEndian.AppendUint32([]byte{2, bits, 0, 0}, 7)
	return append(b, bytes.Join(attrs, nil)...)
}

func TestParseAddress(t *testing.T) {
	v6 := netip.MustParseAddr("2001:db8::1").AsSlice()
	tests := []struct {
		name string
		in   []byte
		want string // empty: no address
		own  bool
	}{
		{"v4", address(24, attr(ifaAddress, 192, 0, 2, 1), attr(ifaLocal, 192, 0, 2, 1)), "192.0.2.1/24", false},
		{"own", address(32, attr(ifaLocal, 192, 0, 2, 1), attr(ifaProto, ownProto)), "192.0.2.1/32", true},
		{"another's mark", address(32, attr(ifaLocal, 192, 0, 2, 1), attr(ifaProto, 3)), "192.0.2.1/32", false},
		{"mark of the wrong size", address(32, attr(ifaLocal, 192, 0, 2, 1), attr(ifaProto, ownProto, 0)), "192.0.2.1/32", false},
		{"v6", address(128, attr(ifaAddress, v6...)), "2001:db8::1/128", false},
		{"local before peer", address(32, attr(ifaLocal, 192, 0, 2, 1), attr(ifaAddress, 192, 0, 2, 9)), "192.0.2.1/32", false},
		{"unknown attribute", address(32, attr(99, 1, 2, 3), attr(ifaLocal, 192, 0, 2, 1)), "192.0.2.1/32", false},
		{"last attribute without padding", address(32, attr(ifaLocal, 192, 0, 2, 1), attr(ifaProto, ownProto)[:5]), "192.0.2.1/32", true},
		{"short attribute", address(32, attr(ifaLocal, 192, 0, 2, 1), []byte{8, 0, ifaProto, 0}), "192.0.2.1/32", false},
		{"attribute of size 0", address(32, []byte{0, 0, 0, 0}, attr(ifaLocal, 192, 0, 2, 1)), "", false},
		{"address of the wrong size", address(32, attr(ifaLocal, 192, 0, 2)), "", false},
		{"prefix too long", address(33, attr(ifaLocal, 192, 0, 2, 1)), "", false},
		{"no attribute", address(32), "", false},
		{"short header", address(32)[:7], "", false},
		{"empty", nil, "", false},
	}
	for _, tt := range tests {
		link, v, ok := parseAddress(tt.in)
		got := ""
		if ok {
			got = v.Prefix.String()
			if link != 7 {
				t.Errorf("%s: want interface 7, got %d", tt.name, link)
			}
		}
		if got != tt.want || v.Own != tt.own {
			t.Errorf("%s: want %q own %v, got %q own %v", tt.name, tt.want, tt.own, got, v.Own)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add(address(32, attr(ifaLocal, 192, 0, 2, 1), attr(ifaProto, ownProto)))
	f.Add(address(32, attr(ifaLocal, 192, 0, 2, 1), attr(ifaProto, ownProto)[:5]))
	f.Fuzz(func(t *testing.T, m []byte) {
		_, v, ok := parseAddress(m)
		if ok != v.Prefix.IsValid() {
			t.Errorf("ok %v with prefix %v", ok, v.Prefix)
		}
		if !ok && v != (VIP{}) {
			t.Errorf("want no value, got %+v", v)
		}
	})
}
