package icmpcheck

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
)

func TestKey(t *testing.T) {
	tests := []struct {
		check Check
		want  string
	}{
		{Check{}, "icmp size=56"},
		{Check{Size: 56}, "icmp size=56"},
		{Check{Size: 1400}, "icmp size=1400"},
		{Check{Via: healthcheck.Via{Interface: "eth1", Mark: 7}}, "icmp size=56 interface=eth1 mark=0x7"},
	}
	for _, tt := range tests {
		if got := tt.check.Key(); got != tt.want {
			t.Errorf("%+v: want %q, got %q", tt.check, tt.want, got)
		}
	}
}

func TestNewChecker(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no icmp checks on " + runtime.GOOS)
	}
	tests := []struct {
		check        Check
		target, want string
	}{
		{Check{}, "192.0.2.1:0", ""},
		{Check{}, "192.0.2.1:80", ""},
		{Check{}, "[2001:db8::1]:0", ""},
		{Check{Size: 8}, "192.0.2.1:0", ""},
		{Check{Size: 65507}, "192.0.2.1:0", ""},
		{Check{Via: healthcheck.Via{Interface: "eth0"}}, "[fe80::1]:0", ""},
		{Check{Size: 7}, "192.0.2.1:0", "icmp check: size 7 is not within 8 and 65507"},
		{Check{Size: -1}, "192.0.2.1:0", "icmp check: size -1 is not within 8 and 65507"},
		{Check{Size: 65508}, "[2001:db8::1]:0", "icmp check: size 65508 is not within 8 and 65507"},
		{Check{}, "0.0.0.0:0", "icmp check: not the address of a host"},
		{Check{}, "[ff02::1]:0", "icmp check: not the address of a host"},
		{Check{}, "[fe80::1]:0", "icmp check: a link-local address needs an interface"},
		{Check{Via: healthcheck.Via{Source: netip.MustParseAddr("192.0.2.2")}}, "[2001:db8::1]:0", "icmp check: source 192.0.2.2 is not of the target's address family"},
	}
	for _, tt := range tests {
		k, err := tt.check.NewChecker(netip.MustParseAddrPort(tt.target), healthcheck.Env{})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%+v of %s (-want +got):\n%s", tt.check, tt.target, diff)
		}
		if (k == nil) != (err != nil) {
			t.Errorf("%+v of %s: got checker %v with error %v", tt.check, tt.target, k, err)
		}
	}
	if _, err := (Check{}).NewChecker(netip.AddrPort{}, healthcheck.Env{}); err == nil {
		t.Error("want an error without an address")
	}
}
