package icmpcheck

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTrouble(t *testing.T) {
	from := netip.MustParseAddr("192.0.2.1")
	tests := []struct {
		trouble trouble
		want    string
	}{
		{trouble{from: from, kind: 3, code: 1}, "host unreachable, says 192.0.2.1"},
		{trouble{from: from, kind: 3, code: 13}, "administratively prohibited, says 192.0.2.1"},
		{trouble{from: from, kind: 11, code: 0}, "time to live exceeded in transit, says 192.0.2.1"},
		{trouble{kind: 3, code: 77}, "ICMP error of type 3, code 77"},
		{trouble{v6: true, from: netip.MustParseAddr("2001:db8::1"), kind: 1, code: 3}, "address unreachable, says 2001:db8::1"},
		{trouble{v6: true, kind: 3, code: 0}, "hop limit exceeded in transit"},
		{trouble{v6: true, kind: 4, code: 1}, "ICMP error of type 4, code 1"},
	}
	for _, tt := range tests {
		if got := tt.trouble.Error(); got != tt.want {
			t.Errorf("want %q, got %q", tt.want, got)
		}
	}
	if err := error(&trouble{errno: syscall.EHOSTUNREACH}); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("want EHOSTUNREACH within %v", err)
	}
}

func TestParseExtended(t *testing.T) {
	// Of a struct of the kernel: errno, origin, type, code, pad, info, data.
	b := binary.NativeEndian.AppendUint32(nil, uint32(syscall.EHOSTUNREACH))
	b = append(b, originICMP, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	inet := append(binary.NativeEndian.AppendUint16(nil, 2), 0, 0, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0)
	a6 := netip.MustParseAddr("2001:db8::1").As16()
	inet6 := append(binary.NativeEndian.AppendUint16(nil, 10), 0, 0, 0, 0, 0, 0)
	inet6 = append(append(inet6, a6[:]...), 0, 0, 0, 0)
	base := extended{errno: syscall.EHOSTUNREACH, origin: originICMP, kind: 3, code: 1}
	with := func(s string) extended {
		e := base
		e.offender = netip.MustParseAddr(s)
		return e
	}
	tests := []struct {
		name   string
		behind []byte
		want   extended
	}{
		{"v4", inet, with("192.0.2.1")},
		{"v6", inet6, with("2001:db8::1")},
		{"nobody", nil, base},
		{"unspecified family", make([]byte, 16), base},
		{"one byte", inet[:1], base},
		{"v4 cut", inet[:7], base},
		{"v6 cut", inet6[:23], base},
	}
	for _, tt := range tests {
		got, err := parseExtended(append(b[:len(b):len(b)], tt.behind...), 2, 10)
		if err != nil || got != tt.want {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, cmp.Diff(tt.want, got, cmp.AllowUnexported(extended{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })))
		}
	}
	for n := range len(b) {
		if got, err := parseExtended(b[:n], 2, 10); err == nil || got != (extended{}) {
			t.Errorf("%d bytes: want an error, got %+v, %v", n, got, err)
		}
	}
}
