package healthcheck

import (
	"net/netip"
	"testing"
	"time"
)

func TestThroughValidate(t *testing.T) {
	target := netip.MustParseAddr("192.0.2.1")
	for _, tt := range []struct {
		service string
		bad     bool
	}{
		{"", false},
		{"198.51.100.1", false},
		{"::ffff:198.51.100.1", false},
		{"2001:db8::1", true},
		{"192.0.2.1", true},
		{"0.0.0.0", true},
		{"224.0.0.1", true},
	} {
		var th Through
		if tt.service != "" {
			th.Service = netip.MustParseAddr(tt.service)
		}
		if err := th.Validate(target); (err != nil) != tt.bad {
			t.Errorf("%q: want an error: %v, got %v", tt.service, tt.bad, err)
		}
	}
}

// TestThroughKey tells probes of one real server through several services apart.
func TestThroughKey(t *testing.T) {
	p := Probe{Method: TCP{}, Target: netip.MustParseAddrPort("192.0.2.1:80"), Timing: Timing{Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}}
	const plain = "tcp 192.0.2.1:80 interval=1s timeout=1s rise=1 fall=1"
	if got := p.Key(); got != plain {
		t.Errorf("want %q, got %q", plain, got)
	}
	p.Through.Service = netip.MustParseAddr("198.51.100.1")
	if got, want := p.Key(), "tcp 192.0.2.1:80 service=198.51.100.1 interval=1s timeout=1s rise=1 fall=1"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	p.Through.Tunnel = true
	if got, want := p.Key(), "tcp 192.0.2.1:80 service=198.51.100.1 tunnel interval=1s timeout=1s rise=1 fall=1"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}
