package healthcheck

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTCPTarget(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no tcp checks on " + runtime.GOOS)
	}
	tests := []struct {
		target netip.AddrPort
		want   string
	}{
		{netip.MustParseAddrPort("192.0.2.1:80"), ""},
		{netip.MustParseAddrPort("[2001:db8::1]:80"), ""},
		{netip.MustParseAddrPort("[::ffff:192.0.2.1]:80"), ""},
		{netip.AddrPort{}, "tcp check without an address"},
		{netip.MustParseAddrPort("192.0.2.1:0"), "tcp check of 192.0.2.1: no port"},
		{netip.MustParseAddrPort("0.0.0.0:80"), "tcp check of 0.0.0.0: not the address of a host"},
		{netip.MustParseAddrPort("[::]:80"), "tcp check of ::: not the address of a host"},
		{netip.MustParseAddrPort("[::ffff:0.0.0.0]:80"), "tcp check of 0.0.0.0: not the address of a host"},
		{netip.MustParseAddrPort("224.0.0.1:80"), "tcp check of 224.0.0.1: not the address of a host"},
		{netip.MustParseAddrPort("255.255.255.255:80"), "tcp check of 255.255.255.255: not the address of a host"},
		{netip.MustParseAddrPort("[fe80::1%eth0]:80"), "tcp check of fe80::1%eth0: an address with a zone is not supported"},
	}
	for _, tt := range tests {
		c, err := TCP{}.NewChecker(tt.target, Env{})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.target, diff)
		}
		if (c == nil) != (err != nil) {
			t.Errorf("%v: got checker %v with error %v", tt.target, c, err)
		}
	}
}
