package ipvs

import (
	"net/netip"
	"testing"
)

func TestNetmaskText(t *testing.T) {
	for _, tt := range []struct {
		mask   Netmask
		family Family
		want   string
	}{
		{Netmask{}, IPv4, "255.255.255.255"},
		{NetmaskV4(netip.MustParseAddr("255.0.254.1")), IPv4, "255.0.254.1"},
		{NetmaskV4(netip.MustParseAddr("0.0.0.0")), IPv4, "0.0.0.0"},
		{Netmask{}, IPv6, "128"},
		{NetmaskV6(64), IPv6, "64"},
	} {
		if got := tt.mask.Text(tt.family); got != tt.want {
			t.Errorf("%v of %v: want %q, got %q", tt.mask, tt.family, tt.want, got)
		}
	}
}
