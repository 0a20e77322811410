package healthcheck

import (
	"net/netip"
	"testing"
)

func TestViaKey(t *testing.T) {
	v4 := netip.MustParseAddr("192.0.2.1")
	tests := []struct {
		via  Via
		want string
	}{
		{Via{}, ""},
		{Via{Source: v4}, " source=192.0.2.1"},
		{Via{Source: netip.MustParseAddr("::ffff:192.0.2.1")}, " source=192.0.2.1"},
		{Via{Interface: "eth1"}, " interface=eth1"},
		{Via{Mark: 31}, " mark=0x1f"},
		{Via{NetNS: "blue"}, " netns=blue"},
		{Via{NetNS: "/a b"}, ` netns="/a b"`},
		{Via{NetNS: `"/a`}, ` netns="\"/a"`},
		{
			Via{netip.MustParseAddr("2001:db8::1"), "eth1", 1<<32 - 1, "/run/netns/blue"},
			" source=2001:db8::1 interface=eth1 mark=0xffffffff netns=/run/netns/blue",
		},
	}
	for _, tt := range tests {
		if got := tt.via.Key(); got != tt.want {
			t.Errorf("%+v: want %q, got %q", tt.via, tt.want, got)
		}
		if got := (TCP{Via: tt.via}).Key(); got != "tcp"+tt.want {
			t.Errorf("tcp %+v: want %q, got %q", tt.via, "tcp"+tt.want, got)
		}
	}
}

func TestViaValidate(t *testing.T) {
	addr := netip.MustParseAddr
	tests := []struct {
		via    Via
		target string
		want   string
	}{
		{Via{}, "192.0.2.1", ""},
		{Via{}, "2001:db8::1", ""},
		{Via{}, "::ffff:192.0.2.1", ""},
		{Via{}, "127.0.0.1", ""},
		{Via{}, "", "no address"},
		{Via{}, "::", "not the address of a host"},
		{Via{}, "ff02::1", "not the address of a host"},
		{Via{}, "fe80::1", "a link-local address needs an interface"},
		{Via{Interface: "eth0"}, "fe80::1", ""},
		{Via{Interface: "eth0"}, "fe80::1%eth0", "an address with a zone is not supported"},
		{Via{}, "169.254.0.1", ""},
		{Via{Source: addr("192.0.2.9")}, "192.0.2.1", ""},
		{Via{Source: addr("::ffff:192.0.2.9")}, "192.0.2.1", ""},
		{Via{Source: addr("192.0.2.9")}, "2001:db8::1", "source 192.0.2.9 is not of the target's address family"},
		{Via{Source: addr("2001:db8::9")}, "192.0.2.1", "source 2001:db8::9 is not of the target's address family"},
		{Via{Source: addr("0.0.0.0")}, "192.0.2.1", "source 0.0.0.0 is not the address of a host"},
		{Via{Source: addr("fe80::9%eth0")}, "2001:db8::1", "source fe80::9%eth0: an address with a zone is not supported"},
		{Via{Interface: "abcdefghijklmno"}, "192.0.2.1", ""},
		{Via{Interface: "abcdefghijklmnop"}, "192.0.2.1", `interface "abcdefghijklmnop" is not the name of an interface`},
		{Via{Interface: "a/b"}, "192.0.2.1", `interface "a/b" is not the name of an interface`},
		{Via{Interface: ".."}, "192.0.2.1", `interface ".." is not the name of an interface`},
		{Via{NetNS: "blue"}, "192.0.2.1", ""},
		{Via{NetNS: "/proc/1/ns/net"}, "192.0.2.1", ""},
		{Via{NetNS: "a/b"}, "192.0.2.1", `netns "a/b" is neither a name nor an absolute path`},
		{Via{NetNS: ".."}, "192.0.2.1", `netns ".." is neither a name nor an absolute path`},
		{Via{NetNS: "/a\x00b"}, "192.0.2.1", `netns "/a\x00b" is neither a name nor an absolute path`},
	}
	for _, tt := range tests {
		var target netip.Addr
		if tt.target != "" {
			target = addr(tt.target)
		}
		got := ""
		if err := tt.via.Validate(target); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%+v to %s: want %q, got %q", tt.via, tt.target, tt.want, got)
		}
	}
}
