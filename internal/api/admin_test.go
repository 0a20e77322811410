package api

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseAdminTarget(t *testing.T) {
	for _, tt := range []struct {
		text string
		want AdminTarget
	}{
		{"web/10.0.0.2:80", AdminTarget{"web", netip.MustParseAddr("10.0.0.2"), 80, true}},
		{"web/10.0.0.2", AdminTarget{"web", netip.MustParseAddr("10.0.0.2"), 0, false}},
		{"10.0.0.2:0", AdminTarget{"", netip.MustParseAddr("10.0.0.2"), 0, true}},
		{"10.0.0.2", AdminTarget{"", netip.MustParseAddr("10.0.0.2"), 0, false}},
		{"TCP [2001:db8::10]:80/[fd00::2]:80", AdminTarget{"TCP [2001:db8::10]:80", netip.MustParseAddr("fd00::2"), 80, true}},
		{"a/b/fd00::2", AdminTarget{"a/b", netip.MustParseAddr("fd00::2"), 0, false}},
	} {
		got, err := ParseAdminTarget(tt.text)
		if err != nil || got != tt.want || got.String() != tt.text {
			t.Errorf("%s: want %+v, got %+v, %v, printed %s", tt.text, tt.want, got, err, got)
		}
	}
	for _, text := range []string{"", "web", "web/", "/10.0.0.2", "web/web1:80", "10.0.0.0/24", "web/10.0.0.2:http", "fe80::1%eth0", "10.0.0.2:65536"} {
		if got, err := ParseAdminTarget(text); err == nil || !strings.Contains(err.Error(), "real server") {
			t.Errorf("%q: want an error about the real server, got %+v, %v", text, got, err)
		}
	}
}

func TestAdminTargetMatch(t *testing.T) {
	target, err := ParseAdminTarget("10.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"10.0.0.2:80": true, "10.0.0.2:0": true, "[::ffff:10.0.0.2]:80": true, "10.0.0.3:80": false} {
		if got := target.Match(netip.MustParseAddrPort(text)); got != want {
			t.Errorf("%v matches %s: want %v, got %v", target, text, want, got)
		}
	}
	if target, err = ParseAdminTarget("web/10.0.0.2:81"); err != nil || target.Match(netip.MustParseAddrPort("10.0.0.2:80")) {
		t.Errorf("%v matches port 80, %v", target, err)
	}
}
