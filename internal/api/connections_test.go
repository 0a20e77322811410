package api

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/ipvs"
)

// endpoint parses one that is right.
func endpoint(text string) (e Endpoint) {
	if err := e.UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return e
}

func TestEndpoint(t *testing.T) {
	for _, tt := range []struct {
		text, print string
		match, not  string
	}{
		{"192.0.2.1", "192.0.2.1", "192.0.2.1:80", "192.0.2.2:80"},
		{"192.0.2.1:80", "192.0.2.1:80", "192.0.2.1:80", "192.0.2.1:81"},
		{"192.0.2.1:0", "192.0.2.1:0", "192.0.2.1:0", "192.0.2.1:81"},
		{"192.0.2.77/24", "192.0.2.0/24", "192.0.2.1:80", "192.0.3.1:80"},
		{"0.0.0.0/0", "0.0.0.0/0", "192.0.2.1:80", "[2001:db8::1]:80"},
		{"2001:db8::1", "2001:db8::1", "[2001:db8::1]:80", "[2001:db8::2]:80"},
		{"[2001:db8::1]:80", "[2001:db8::1]:80", "[2001:db8::1]:80", "[2001:db8::1]:81"},
		{"2001:db8::/32", "2001:db8::/32", "[2001:db8:9::1]:80", "[2001:db9::1]:80"},
		{"::ffff:192.0.2.1", "192.0.2.1", "192.0.2.1:80", "192.0.2.2:80"},
		{"[::ffff:192.0.2.1]:80", "192.0.2.1:80", "192.0.2.1:80", "192.0.2.1:81"},
		{"::ffff:192.0.2.0/120", "192.0.2.0/24", "192.0.2.1:80", "192.0.3.1:80"},
	} {
		e := endpoint(tt.text)
		if got := e.String(); got != tt.print || endpoint(got) != e {
			t.Errorf("%s: want %s, got %s", tt.text, tt.print, got)
		}
		if !e.match(netip.MustParseAddrPort(tt.match)) || e.match(netip.MustParseAddrPort(tt.not)) {
			t.Errorf("%s: want a match of %s and none of %s", tt.text, tt.match, tt.not)
		}
	}
	for _, text := range []string{"", "192.0.2", "192.0.2.1:", "192.0.2.1:65536", "192.0.2.0/33", "2001:db8::1:80:", "fe80::1%eth0",
		"[fe80::1%eth0]:80", "web", "192.0.2.1:80/24", "-"} {
		var e Endpoint
		if err := e.UnmarshalText([]byte(text)); err == nil || e != (Endpoint{}) {
			t.Errorf("%q: want an error, got %v, %v", text, e, err)
		}
	}
	if (Endpoint{}).String() != "" || !(Endpoint{}).match(netip.MustParseAddrPort("192.0.2.1:80")) {
		t.Error("the zero value does not match all")
	}
}

// FuzzEndpoint sees that what is accepted prints as what is accepted alike.
func FuzzEndpoint(f *testing.F) {
	for _, s := range []string{"192.0.2.1", "[2001:db8::1]:80", "192.0.2.0/24", "::ffff:1.2.3.4/100"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var e, again Endpoint
		if e.UnmarshalText([]byte(s)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(e.String())); err != nil || again != e {
			t.Errorf("%q: %q is %v, %v", s, e, again, err)
		}
	})
}

func TestConnectionQueryValues(t *testing.T) {
	for _, q := range []ConnectionQuery{
		{},
		{Service: "a/b &=%é", Client: endpoint("2001:db8::/32"), Server: endpoint("[2001:db8::2]:80"), State: "S-ACK-SENT"},
		{Client: endpoint("192.0.2.1")},
	} {
		got, err := parseConnectionQuery(q.values().Encode())
		if err != nil || got != q {
			t.Errorf("want %v, got %v, %v", q, got, err)
		}
	}
}

// TestSelect says which service each connection is of, and filters.
func TestSelect(t *testing.T) {
	ap := netip.MustParseAddrPort
	var o Owners
	add := func(k ipvs.ServiceKey, name string, servers ...string) {
		o.Add(k, name, func(yield func(netip.AddrPort) bool) {
			for _, s := range servers {
				if !yield(ap(s)) {
					return
				}
			}
		})
	}
	add(ipvs.AddrService(ipvs.TCP, ap("192.0.2.10:80")), "web", "10.0.0.2:80")
	add(ipvs.AddrService(ipvs.TCP, ap("192.0.2.10:0")), "rest", "10.0.0.2:0")
	add(ipvs.AddrService(ipvs.UDP, ap("[2001:db8::10]:53")), "", "[fd00::2]:53")
	add(ipvs.MarkService(ipvs.IPv4, 7), "seven", "10.0.0.7:0", "10.0.0.9:0")
	add(ipvs.MarkService(ipvs.IPv4, 8), "eight", "10.0.0.8:8080", "10.0.0.9:80")
	add(ipvs.MarkService(ipvs.IPv6, 0x01020304), "six")

	conn := func(p ipvs.Protocol, client, virtual, server, state string) ipvs.Connection {
		return ipvs.Connection{Protocol: p, Client: ap(client), Virtual: ap(virtual), Server: ap(server), State: state, Expires: 90 * time.Second}
	}
	conns := []ipvs.Connection{
		conn(ipvs.TCP, "198.51.100.1:1", "192.0.2.10:80", "10.0.0.2:80", "ESTABLISHED"),
		conn(ipvs.TCP, "198.51.100.1:2", "192.0.2.10:8080", "10.0.0.2:8080", "FIN_WAIT"),
		conn(ipvs.TCP, "198.51.100.0:0", "192.0.2.10:0", "10.0.0.2:0", "ASSURED"),
		conn(ipvs.UDP, "[2001:db8::1]:3", "[2001:db8::10]:53", "[fd00::2]:53", "UDP"),
		conn(ipvs.TCP, "198.51.100.2:4", "192.0.2.77:80", "10.0.0.7:80", "ESTABLISHED"),
		conn(ipvs.TCP, "198.51.100.2:5", "192.0.2.77:80", "10.0.0.8:8080", "ESTABLISHED"),
		conn(ipvs.TCP, "198.51.100.2:6", "192.0.2.77:80", "10.0.0.9:80", "ESTABLISHED"),
		conn(ipvs.TCP, "198.51.100.2:7", "192.0.2.77:80", "10.0.0.99:80", "NONE"),
		conn(0, "198.51.100.2:0", "0.0.0.7:0", "10.0.0.7:0", "NONE"),
		conn(0, "[2001:db8::]:0", "[102:304::]:0", "[fd00::2]:0", "NONE"),
		conn(0, "198.51.100.2:0", "0.0.0.9:0", "10.0.0.7:0", "NONE"),
	}
	stream := func(yield func(ipvs.Connection, error) bool) {
		for _, c := range conns {
			if !yield(c, nil) {
				return
			}
		}
	}
	all := []string{
		"web TCP 198.51.100.1:1 192.0.2.10:80 10.0.0.2:80 ESTABLISHED",
		"rest TCP 198.51.100.1:2 192.0.2.10:8080 10.0.0.2:8080 FIN_WAIT",
		"rest TCP 198.51.100.0:0 192.0.2.10:0 10.0.0.2:0 ASSURED template",
		"UDP [2001:db8::10]:53 UDP [2001:db8::1]:3 [2001:db8::10]:53 [fd00::2]:53 UDP",
		"seven TCP 198.51.100.2:4 192.0.2.77:80 10.0.0.7:80 ESTABLISHED",
		"eight TCP 198.51.100.2:5 192.0.2.77:80 10.0.0.8:8080 ESTABLISHED",
		" TCP 198.51.100.2:6 192.0.2.77:80 10.0.0.9:80 ESTABLISHED",
		" TCP 198.51.100.2:7 192.0.2.77:80 10.0.0.99:80 NONE",
		"seven IP 198.51.100.2:0 FWM 7 10.0.0.7:0 NONE template",
		"six IP [2001:db8::]:0 FWM 16909060 IPv6 [fd00::2]:0 NONE template",
		" IP 198.51.100.2:0 FWM 9 10.0.0.7:0 NONE template",
	}
	for _, tt := range []struct {
		name  string
		query ConnectionQuery
		want  []int
	}{
		{"all", ConnectionQuery{}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{"service", ConnectionQuery{Service: "web"}, []int{0}},
		{"any port", ConnectionQuery{Service: "rest"}, []int{1, 2}},
		{"by key", ConnectionQuery{Service: "UDP [2001:db8::10]:53"}, []int{3}},
		{"mark", ConnectionQuery{Service: "seven"}, []int{4, 6, 8}},
		{"mark with ports", ConnectionQuery{Service: "FWM 8"}, []int{5, 6}},
		{"client", ConnectionQuery{Client: endpoint("198.51.100.1")}, []int{0, 1}},
		{"clients", ConnectionQuery{Client: endpoint("198.51.100.0/31")}, []int{0, 1, 2}},
		{"server", ConnectionQuery{Server: endpoint("10.0.0.2:80")}, []int{0}},
		{"state", ConnectionQuery{State: "NONE"}, []int{7, 8, 9, 10}},
		{"several", ConnectionQuery{Service: "seven", Client: endpoint("198.51.100.2"), Server: endpoint("10.0.0.7"), State: "ESTABLISHED"}, []int{4}},
		{"none", ConnectionQuery{Service: "web", State: "UDP"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := o.Select(stream, tt.query)
			if err != nil {
				t.Fatal(err)
			}
			var want, lines []string
			for _, i := range tt.want {
				want = append(want, all[i])
			}
			for c, err := range got {
				if err != nil || c.ExpiresSeconds != 90 {
					t.Errorf("%+v, %v", c, err)
				}
				line := fmt.Sprintf("%s %s %s %s %s %s", c.Service, c.Protocol, c.Client, c.Virtual, c.RealServer, c.State)
				if c.Template {
					line += " template"
				}
				lines = append(lines, line)
			}
			if diff := cmp.Diff(want, lines); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := o.Select(stream, ConnectionQuery{Service: "nope"}); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("want ErrNotFound with the name, got %v", err)
	}
	broken := errors.New("broken")
	got, err := new(Owners).Select(func(yield func(ipvs.Connection, error) bool) { yield(ipvs.Connection{}, broken) }, ConnectionQuery{State: "UDP"})
	if err != nil || !slices.Equal(errorsOf(got), []error{broken}) {
		t.Errorf("want the table's error alone, got %v, %v", errorsOf(got), err)
	}
}

func errorsOf(conns iter.Seq2[Connection, error]) (errs []error) {
	for _, err := range conns {
		errs = append(errs, err)
	}
	return errs
}

// TestStatesAreDescribed compares the states with those of openapi.json.
func TestStatesAreDescribed(t *testing.T) {
	want := readOpenAPI(t).Components.Schemas["Connection"].Properties["state"].Enum
	if diff := cmp.Diff(want, ConnectionStates); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
