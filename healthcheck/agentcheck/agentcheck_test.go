package agentcheck

import (
	"net/netip"
	"testing"

	"github.com/lbd-project/lbd/healthcheck"
)

func TestKey(t *testing.T) {
	keys := make(map[string]Check)
	for _, c := range []Check{
		{},
		{Send: "state\n"},
		{Send: "state"},
		{Via: healthcheck.Via{Mark: 1}},
		{Via: healthcheck.Via{Interface: "eth0"}, Send: "state"},
	} {
		if other, ok := keys[c.Key()]; ok {
			t.Errorf("%+v and %+v have the key %q", c, other, c.Key())
		}
		keys[c.Key()] = c
	}
	if got := (Check{}).Key(); got != "agent" {
		t.Errorf(`want "agent", got %q`, got)
	}
}

func TestNewCheckerErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		check  Check
		target netip.AddrPort
		want   string
	}{
		"no address": {Check{}, netip.AddrPort{}, "agent check without an address"},
		"no port":    {Check{}, netip.MustParseAddrPort("10.0.0.2:0"), "agent check of 10.0.0.2: no port"},
		"no host":    {Check{}, netip.MustParseAddrPort("0.0.0.0:80"), "agent check of 0.0.0.0: not the address of a host"},
		"source":     {Check{Via: healthcheck.Via{Source: netip.MustParseAddr("::1")}}, netip.MustParseAddrPort("10.0.0.2:80"), "agent check of 10.0.0.2: source ::1 is not of the target's address family"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tt.check.NewChecker(tt.target, healthcheck.Env{}); err == nil || err.Error() != tt.want {
				t.Errorf("want %q, got %v", tt.want, err)
			}
		})
	}
}
