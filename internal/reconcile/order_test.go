package reconcile

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// orderText prints the list of the only service in a table.
func orderText(t *testing.T, f *ipvstest.Fake) string {
	t.Helper()
	var text string
	for _, d := range table(t, f)[0].Destinations {
		text += fmt.Sprintf("%v ", d.Address.Addr())
	}
	return text
}

func addrs(list ...string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, a := range list {
		all = append(all, netip.MustParseAddrPort(a+":80"))
	}
	return all
}

// What is added again gets the place that it had.
func TestOrderOfWhatIsAddedAgain(t *testing.T) {
	web := service("192.0.2.10:80")
	a, b, c, d := destination("10.0.0.1:80", 1), destination("10.0.0.2:80", 1), destination("10.0.0.3:80", 1), destination("10.0.0.4:80", 1)
	for _, tt := range []struct {
		name  string
		order []netip.AddrPort
		have  []ipvs.Destination
		want  string
	}{
		{"nothing remembered", nil, nil, "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 "},
		{"everything remembered", addrs("10.0.0.3", "10.0.0.1", "10.0.0.4", "10.0.0.2"), nil, "10.0.0.3 10.0.0.1 10.0.0.4 10.0.0.2 "},
		{"new ones come before the old", addrs("10.0.0.4", "10.0.0.2"), nil, "10.0.0.1 10.0.0.3 10.0.0.4 10.0.0.2 "},
		{"others are remembered", addrs("10.0.0.9", "10.0.0.4", "10.0.0.8", "10.0.0.4"), nil, "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 "},
		{"some are there", addrs("10.0.0.3", "10.0.0.1", "10.0.0.4", "10.0.0.2"), []ipvs.Destination{b, d}, "10.0.0.3 10.0.0.1 10.0.0.4 10.0.0.2 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := ipvstest.New()
			for i, have := range tt.have {
				if i == 0 {
					if err := f.Do(ipvs.Op{Kind: ipvs.OpAddService, Service: web}); err != nil {
						t.Fatal(err)
					}
				}
				if err := f.Do(ipvs.Op{Kind: ipvs.OpAddDestination, Service: web, Destination: have}); err != nil {
					t.Fatal(err)
				}
			}
			s := wantService(web, a, b, c, d)
			s.Order = tt.order
			mustPass(t, new(Reconciler), f, Desired{Services: []DesiredService{s}})
			if got := orderText(t, f); got != tt.want {
				t.Errorf("list: want %s, got %s", tt.want, got)
			}
		})
	}
}

// Only what the file does not say is remembered, for as long as it is wanted.
func TestOrders(t *testing.T) {
	f, r := ipvstest.New(), new(Reconciler)
	web := service("192.0.2.10:80")
	a, b, c := destination("10.0.0.1:80", 1), destination("10.0.0.2:80", 1), destination("10.0.0.3:80", 1)
	type orders = map[ipvs.ServiceKey][]netip.AddrPort
	check := func(what string, d Desired, last, want orders) orders {
		t.Helper()
		got := r.Orders(d, last)
		if diff := cmp.Diff(want, got, equal, cmp.Comparer(func(a, b ipvs.ServiceKey) bool { return a == b })); diff != "" {
			t.Errorf("orders %s (-want +got):\n%s", what, diff)
		}
		return got
	}
	all := Desired{Services: []DesiredService{wantService(web, a, b, c)}}
	last := orders{web.ServiceKey: addrs("10.0.0.9")}
	check("before any pass", all, last, last)
	mustPass(t, r, f, all)
	check("of the file", all, last, nil)

	mustPass(t, r, f, Desired{Services: []DesiredService{wantService(web, a, c)}})
	mustPass(t, r, f, all)
	moved := check("after a server came back", all, nil, orders{web.ServiceKey: addrs("10.0.0.2", "10.0.0.1", "10.0.0.3")})
	r.belief.applied(&ipvs.Op{Kind: ipvs.OpDeleteDestination, Service: web, Destination: a})
	check("while one is missing", all, moved, moved)
	check("of a service that is not wanted", Desired{}, moved, nil)
}
