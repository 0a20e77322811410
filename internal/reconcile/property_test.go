package reconcile

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// genKey draws from few keys, so that desired and actual have many in common.
var genKey = rapid.Custom(func(t *rapid.T) ipvs.ServiceKey {
	if rapid.IntRange(0, 3).Draw(t, "mark") == 0 {
		return ipvs.MarkService(rapid.SampledFrom([]ipvs.Family{ipvs.IPv4, ipvs.IPv6}).Draw(t, "family"), 7)
	}
	return ipvs.AddrService(
		rapid.SampledFrom([]ipvs.Protocol{ipvs.TCP, ipvs.UDP}).Draw(t, "protocol"),
		netip.MustParseAddrPort(rapid.SampledFrom([]string{
			"192.0.2.1:80", "192.0.2.1:81", "192.0.2.2:80", "[2001:db8::1]:80"}).Draw(t, "address")))
})

var genService = rapid.Custom(func(t *rapid.T) ipvs.Service {
	s := ipvs.Service{ServiceKey: genKey.Draw(t, "key"),
		Scheduler: rapid.SampledFrom([]ipvs.Scheduler{"rr", "wlc", "sh"}).Draw(t, "scheduler"),
		Flags:     ipvs.ServiceFlags(rapid.SampledFrom([]uint32{0, 1, 4, 0x18, 0x3d}).Draw(t, "flags"))}
	if s.Flags&ipvs.FlagPersistent != 0 {
		s.Persistence.Timeout = time.Duration(rapid.IntRange(1, 3).Draw(t, "timeout")) * time.Second
	}
	if rapid.Bool().Draw(t, "mask") {
		s.Persistence.Netmask = ipvs.NetmaskV6(rapid.SampledFrom([]uint8{64, 128}).Draw(t, "prefix"))
		if s.Family == ipvs.IPv4 {
			m := rapid.SampledFrom([]string{"255.255.255.0", "255.255.255.255", "0.0.0.0"}).Draw(t, "v4")
			s.Persistence.Netmask = ipvs.NetmaskV4(netip.MustParseAddr(m))
		}
	}
	return s
})

func genDestination(s ipvs.Service) *rapid.Generator[ipvs.Destination] {
	return rapid.Custom(func(t *rapid.T) ipvs.Destination {
		host, other := "10.0.0.%d", "[2001:db8:1::%d]"
		if s.Family == ipvs.IPv6 {
			host, other = other, host
		}
		d := ipvs.Destination{
			Weight:         uint32(rapid.IntRange(0, 3).Draw(t, "weight")),
			UpperThreshold: uint32(rapid.IntRange(5, 6).Draw(t, "upper")),
			LowerThreshold: uint32(rapid.IntRange(0, 1).Draw(t, "lower")),
			Forward:        rapid.SampledFrom([]ipvs.ForwardMethod{ipvs.Masq, ipvs.Route, ipvs.Tunnel}).Draw(t, "forward"),
		}
		if d.Forward == ipvs.Tunnel {
			d.Tunnel = rapid.SampledFrom([]ipvs.TunnelOptions{{}, {Type: ipvs.TunnelGRE},
				{Type: ipvs.TunnelGUE, Port: 6080}, {Type: ipvs.TunnelGUE, Port: 6081, Checksum: ipvs.ChecksumOn}}).Draw(t, "tunnel")
			if rapid.Bool().Draw(t, "mixed") {
				host = other
			}
		}
		a := fmt.Sprintf(host+":%d", rapid.IntRange(1, 6).Draw(t, "host"), s.Address.Port())
		d.Address = netip.MustParseAddrPort(a)
		return d
	})
}

var genServices = rapid.Custom(func(t *rapid.T) []DesiredService {
	var list []DesiredService
	for _, s := range rapid.SliceOfNDistinct(genService, 0, 6, func(s ipvs.Service) ipvs.ServiceKey { return s.ServiceKey }).Draw(t, "services") {
		list = append(list, DesiredService{Service: s, Destinations: rapid.SliceOfNDistinct(genDestination(s), 0, 5,
			func(d ipvs.Destination) netip.AddrPort { return d.Address }).Draw(t, "servers")})
	}
	return list
})

// Whatever is there and whatever is wanted: applying the difference makes the
// table right, touches nothing of others, deletes nothing that stays, never
// empties a service that has servers before and after, and leaves no difference.
func TestDiffProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := ipvstest.New()
		for _, op := range Diff(Desired{Services: genServices.Draw(t, "actual")}, nil) {
			if err := f.Do(op); err != nil {
				t.Fatal(err)
			}
		}
		before, err := f.Table(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d := Desired{
			Services:  genServices.Draw(t, "desired"),
			Owned:     make(map[ipvs.ServiceKey]struct{}),
			Exclusive: rapid.Bool().Draw(t, "exclusive"),
		}
		for _, k := range rapid.SliceOf(genKey).Draw(t, "owned") {
			d.Owned[k] = struct{}{}
		}

		was := byKey(before)
		want := make(map[ipvs.ServiceKey]DesiredService)
		for _, s := range d.Services {
			want[s.ServiceKey] = s
		}
		ops := Diff(d, before)
		if diff := cmp.Diff(ops, Diff(d, before), equal); diff != "" {
			t.Fatalf("Diff gives two answers: %s", diff)
		}
		for _, op := range ops {
			s, wanted := want[op.Service.ServiceKey]
			old, existed := was[op.Service.ServiceKey]
			switch op.Kind {
			case ipvs.OpDeleteService:
				if _, owned := d.Owned[op.Service.ServiceKey]; wanted || !owned && !d.Exclusive {
					t.Fatalf("%v %v", op.Kind, op.Service.ServiceKey)
				}
			default:
				if !wanted {
					t.Fatalf("%v %v, which is not wanted", op.Kind, op.Service.ServiceKey)
				}
			}
			if op.Kind == ipvs.OpDeleteDestination {
				for _, dest := range s.Destinations {
					if dest.Address == op.Destination.Address {
						t.Fatalf("%v %v, which is wanted", op.Kind, dest.Address)
					}
				}
			}
			// Every operation must work, one at a time.
			if err := f.Apply(t.Context(), []ipvs.Op{op}); err != nil {
				t.Fatal(err)
			}
			if existed && wanted && serves(old.Destinations) && servesDesired(s.Destinations) {
				list, err := f.Destinations(t.Context(), s.ServiceKey)
				if err != nil {
					t.Fatal(err)
				}
				if !serves(list) {
					t.Fatalf("%v has no server after %v %v", s.ServiceKey, op.Kind, op.Destination.Address)
				}
			}
		}

		after, err := f.Table(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ops := Diff(d, after); len(ops) > 0 {
			t.Fatalf("after applying the difference there is another: %v", ops)
		}
		is := byKey(after)
		for k, old := range was {
			_, owned := d.Owned[k]
			if _, wanted := want[k]; !wanted && !owned && !d.Exclusive {
				if diff := cmp.Diff(old, is[k], equal); diff != "" {
					t.Fatalf("foreign %v was changed: %s", k, diff)
				}
			}
		}
		// F21: all that is wanted is there, and in the right order where it is new.
		for k, s := range want {
			e, ok := is[k]
			if !ok || len(e.Destinations) != len(s.Destinations) {
				t.Fatalf("%v: want %d servers, got %+v", k, len(s.Destinations), e)
			}
			if len(was[k].Destinations) > 0 {
				continue
			}
			for i, dest := range s.Destinations {
				if e.Destinations[i].Address != dest.Address {
					t.Fatalf("%v: server %d of the file is not number %d of the list", k, i, i)
				}
			}
		}
	})
}

func byKey(table []ipvs.TableEntry) map[ipvs.ServiceKey]ipvs.TableEntry {
	m := make(map[ipvs.ServiceKey]ipvs.TableEntry)
	for _, e := range table {
		m[e.ServiceKey] = e
	}
	return m
}

// serves says whether one of the real servers takes new connections.
func serves(list []ipvs.DestinationStatus) bool {
	for _, d := range list {
		if d.Weight > 0 {
			return true
		}
	}
	return false
}

func servesDesired(list []ipvs.Destination) bool {
	for _, d := range list {
		if d.Weight > 0 {
			return true
		}
	}
	return false
}
