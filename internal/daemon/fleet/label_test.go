package fleet

import (
	"net/netip"
	"testing"

	"github.com/lbd-project/lbd/healthcheck"
)

// Two probes of one real server with the same type, one of them through the
// service, have names that tell them apart.
func TestLabel(t *testing.T) {
	vip4, vip6 := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")
	for _, tt := range []struct {
		target  string
		through healthcheck.Through
		want    string
	}{
		{"10.0.0.2:80", healthcheck.Through{}, "tcp 10.0.0.2:80"},
		{"10.0.0.2:0", healthcheck.Through{}, "tcp 10.0.0.2"},
		{"10.0.0.2:80", healthcheck.Through{Service: vip4}, "tcp 192.0.2.10:80 by 10.0.0.2"},
		{"[fd00::2]:80", healthcheck.Through{Service: vip6, Tunnel: true}, "tcp [2001:db8::10]:80 in the tunnel to fd00::2"},
	} {
		p := probe("tcp source=10.0.0.1", tt.target)
		p.Through = tt.through
		if got := Label(p); got != tt.want {
			t.Errorf("want %q, got %q", tt.want, got)
		}
	}
}
