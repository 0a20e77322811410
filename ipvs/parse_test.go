package ipvs

import (
	"net/netip"
	"testing"
)

func TestParseServiceKey(t *testing.T) {
	for _, want := range []ServiceKey{
		AddrService(TCP, netip.MustParseAddrPort("192.0.2.10:80")),
		AddrService(UDP, netip.MustParseAddrPort("192.0.2.10:0")),
		AddrService(SCTP, netip.MustParseAddrPort("[2001:db8::1]:65535")),
		MarkService(IPv4, 7),
		MarkService(IPv6, 0xffffffff),
	} {
		got, err := ParseServiceKey(want.String())
		if got != want || err != nil {
			t.Errorf("ParseServiceKey(%q): want %+v, got %+v, %v", want, want, got, err)
		}
	}
}

func TestParseServiceKeyRefuses(t *testing.T) {
	for _, s := range []string{
		"", " ", "TCP", "TCP ", "192.0.2.10:80", "tcp 192.0.2.10:80", "TCP 192.0.2.10", "TCP  192.0.2.10:80",
		"TCP 192.0.2.10:80 ", "TCP 192.0.2.10:080", "TCP 192.0.2.10:65536", "TCP host:80", "99 192.0.2.10:80",
		"TCP [2001:DB8::1]:80", "TCP [2001:db8:0::1]:80", "TCP [::ffff:192.0.2.10]:80", "TCP [fe80::1%lo]:80",
		"FWM", "FWM ", "FWM 0", "FWM -1", "FWM 07", "FWM 4294967296", "FWM 7 IPv4", "FWM 7 IPv6 ", "FWM IPv6", "FWM 7 7",
	} {
		if k, err := ParseServiceKey(s); err == nil || k != (ServiceKey{}) {
			t.Errorf("ParseServiceKey(%q): want an error and no key, got %+v, %v", s, k, err)
		}
	}
}

func FuzzParseServiceKey(f *testing.F) {
	for _, s := range []string{"TCP 192.0.2.10:80", "UDP [2001:db8::1]:53", "FWM 7", "FWM 7 IPv6"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := ParseServiceKey(s)
		if err != nil {
			return
		}
		if k.String() != s {
			t.Errorf("%q parses as %q", s, k)
		}
		if err := k.Validate(); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	})
}
