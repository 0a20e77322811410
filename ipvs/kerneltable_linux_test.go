package ipvs

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestKernelListOrder pins that new real servers go to the head of the list,
// also those that come back, and that an edit leaves them in place.
func TestKernelListOrder(t *testing.T) {
	c, _ := kernelClient(t)
	a, b, d := dest("10.0.0.1:80", Masq), dest("10.0.0.2:80", Masq), dest("10.0.0.3:80", Masq)
	mustApply(t, c, addService(service(kernelV4)), addDest(kernelV4, a), addDest(kernelV4, b), addDest(kernelV4, d))
	checkDests(t, c, kernelV4, d, b, a)
	a.Weight = 7
	mustApply(t, c, Op{Kind: OpUpdateDestination, Service: service(kernelV4), Destination: a})
	checkDests(t, c, kernelV4, d, b, a)
	mustApply(t, c, Op{Kind: OpDeleteDestination, Service: service(kernelV4), Destination: b}, addDest(kernelV4, b))
	checkDests(t, c, kernelV4, b, d, a)
	// The counts come in the same order.
	got, err := c.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []DestinationCounts{counts(kernelV4, "10.0.0.2:80", 1, 0, 0), counts(kernelV4, "10.0.0.3:80", 1, 0, 0),
		counts(kernelV4, "10.0.0.1:80", 7, 0, 0)}
	if diff := cmp.Diff(want, got, testOptions); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestKernelAbsentServiceHasNoDestinations(t *testing.T) {
	c, _ := kernelClient(t)
	list, err := c.Destinations(t.Context(), kernelV4)
	if err != nil || list != nil {
		t.Errorf("%v, %v; want nil and no error", list, err)
	}
	if services, err := c.Services(t.Context()); err != nil || services != nil {
		t.Errorf("services %v, %v; want nil and no error", services, err)
	}
	if table := mustTable(t, c); table != nil {
		t.Errorf("table %v, want nil", table)
	}
	if counts, err := c.Counts(t.Context()); err != nil || counts != nil {
		t.Errorf("counts %v, %v; want nil and no error", counts, err)
	}
}

// TestKernelServices writes services of every scheduler, family and flag, and
// reads them back as they were written.
func TestKernelServices(t *testing.T) {
	c, _ := kernelClient(t)
	var want []Service
	port := uint16(1000)
	add := func(s Service) {
		port++
		if s.FWMark == 0 {
			s.ServiceKey = AddrService(s.Protocol, netip.AddrPortFrom(s.Address.Addr(), port))
		}
		want = append(want, s)
	}
	protocols := []Protocol{TCP, UDP, SCTP}
	for i, name := range []Scheduler{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "mh", "sed", "nq", "fo", "ovf"} {
		for j, key := range []ServiceKey{kernelV4, kernelV6} {
			key.Protocol = protocols[(i+j)%len(protocols)]
			add(Service{ServiceKey: key, Scheduler: name})
		}
	}
	// Debian's kernels before 6.12 are built without it.
	twos := service(AddrService(TCP, netip.MustParseAddrPort("192.0.2.10:999")))
	twos.Scheduler = "twos"
	switch err := c.AddService(t.Context(), twos); {
	case err == nil:
		if err := c.DeleteService(t.Context(), twos.ServiceKey); err != nil {
			t.Fatal(err)
		}
		add(twos)
	case !errors.Is(err, ErrSchedulerNotFound):
		t.Fatal(err)
	}
	for _, f := range []ServiceFlags{FlagOnePacket, FlagSHFallback, FlagSHPort, FlagSched3, FlagMHFallback | FlagMHPort} {
		add(Service{ServiceKey: kernelV4, Scheduler: "mh", Flags: f})
		add(Service{ServiceKey: kernelV6, Scheduler: "mh", Flags: f})
	}
	for _, p := range []Persistence{
		{Timeout: time.Second},
		{Timeout: 5 * time.Minute, Netmask: NetmaskV4(netip.MustParseAddr("255.255.255.0"))},
		{Timeout: maxTimeout, Netmask: NetmaskV4(netip.MustParseAddr("0.0.0.0"))},
		{Timeout: time.Minute, Netmask: NetmaskV4(netip.MustParseAddr("255.0.255.0"))},
	} {
		add(Service{ServiceKey: kernelV4, Scheduler: "wlc", Flags: FlagPersistent, Persistence: p})
	}
	for _, p := range []Persistence{
		{Timeout: time.Second},
		{Timeout: 5 * time.Minute, Netmask: NetmaskV6(1)},
		{Timeout: maxTimeout, Netmask: NetmaskV6(64)},
	} {
		add(Service{ServiceKey: kernelV6, Scheduler: "wlc", Flags: FlagPersistent | FlagOnePacket, Persistence: p})
	}
	// The engine sip is for UDP.
	add(Service{ServiceKey: AddrService(UDP, kernelV4.Address), Scheduler: "rr", Flags: FlagPersistent,
		Persistence: Persistence{Timeout: time.Minute, Engine: "sip"}})
	for _, m := range []uint32{1, 0x12345, math.MaxUint32} {
		add(service(MarkService(IPv4, m)))
		add(service(MarkService(IPv6, m)))
	}
	port0 := service(AddrService(TCP, netip.MustParseAddrPort("192.0.2.10:0")))
	port0.Flags, port0.Persistence.Timeout = FlagPersistent, time.Second
	want = append(want, port0)

	var ops []Op
	for _, s := range want {
		ops = append(ops, addService(s))
	}
	mustApply(t, c, ops...)
	slices.SortFunc(want, func(a, b Service) int { return a.ServiceKey.Compare(b.ServiceKey) })
	check := func() {
		t.Helper()
		list, err := c.Services(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []Service
		for _, s := range list {
			got = append(got, s.Service)
		}
		if diff := cmp.Diff(want, got, testOptions); diff != "" {
			t.Errorf("services (-want +got):\n%s", diff)
		}
	}
	check()
	// Each attribute edited in place, engine and flags taken away too.
	ops = ops[:0]
	for i := range want {
		want[i].Scheduler = "wrr"
		want[i].Persistence.Engine = ""
		want[i].Flags ^= FlagOnePacket
		if want[i].Flags&FlagPersistent != 0 {
			want[i].Persistence.Timeout = 77 * time.Second
		}
		ops = append(ops, Op{Kind: OpUpdateService, Service: want[i]})
	}
	mustApply(t, c, ops...)
	check()
	for _, s := range want {
		got, err := c.Service(t.Context(), s.ServiceKey)
		if err != nil || got.Service != s {
			t.Errorf("Service(%v): %+v, %v; want %+v", s.ServiceKey, got.Service, err, s)
		}
	}
}

// TestKernelDump pins that the kernel dumps its own HASHED bit, which the
// decoder hides, and statistics of both widths.
func TestKernelDump(t *testing.T) {
	c, _ := kernelClient(t)
	mustApply(t, c, addService(service(kernelV4)), addService(service(MarkService(IPv6, 7))), addDest(kernelV4, dest("10.0.0.1:80", Masq)))
	b := rawService(t, c, kernelV4)
	if got := attrU32(t, b, svcFlags); got != serviceHashed {
		t.Errorf("flags of a new service %#x, want %#x", got, serviceHashed)
	}
	for _, typ := range []uint16{svcStats, svcStats64} {
		if _, err := nested(b, typ); err != nil {
			t.Errorf("statistics: %v", err)
		}
	}
	if addr, err := nested(b, svcAddr); err != nil || len(addr) != 16 {
		t.Errorf("address % x, %v; want 16 bytes", addr, err)
	}
	mark := rawService(t, c, MarkService(IPv6, 7))
	if got := attrU32(t, mark, svcFWMark); got != 7 {
		t.Errorf("fwmark %d, want 7", got)
	}
	if _, err := nested(mark, svcProtocol); err == nil {
		t.Error("a fwmark service has a protocol")
	}
	if got := attrU32(t, mark, svcNetmask); got != 128 {
		t.Errorf("prefix length %d, want 128 in native order", got)
	}
}

// TestKernelDestinations writes real servers of every method and tunnel in
// services of both families and reads them back.
func TestKernelDestinations(t *testing.T) {
	c, _ := kernelClient(t)
	keys := []ServiceKey{kernelV4, kernelV6, MarkService(IPv4, 7), MarkService(IPv6, 7)}
	for _, k := range keys {
		t.Run(k.String(), func(t *testing.T) {
			mustApply(t, c, addService(service(k)))
			n := byte(0)
			var want []Destination
			add := func(f Family, d Destination) {
				n++
				a := netip.AddrFrom4([4]byte{10, 0, 0, n})
				if f == IPv6 {
					a = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: n})
				}
				d.Address = netip.AddrPortFrom(a, 80)
				want = append(want, d)
			}
			for _, m := range []ForwardMethod{Masq, Route, Tunnel, Local} {
				add(k.Family, Destination{Forward: m, Weight: uint32(m)})
			}
			for _, f := range []Family{IPv4, IPv6} {
				for _, o := range []TunnelOptions{{}, {TunnelGUE, 6080, ChecksumNone}, {TunnelGUE, 1, ChecksumOn},
					{TunnelGUE, math.MaxUint16, ChecksumRemote}, {TunnelGRE, 0, ChecksumNone}, {TunnelGRE, 0, ChecksumOn}} {
					add(f, Destination{Forward: Tunnel, Weight: 1, Tunnel: o})
				}
			}
			add(k.Family, Destination{Weight: math.MaxInt32, UpperThreshold: math.MaxInt32, LowerThreshold: math.MaxInt32})
			add(k.Family, Destination{UpperThreshold: 1000, LowerThreshold: 1})
			var ops []Op
			for _, d := range want {
				ops = append(ops, addDest(k, d))
			}
			mustApply(t, c, ops...)
			slices.Reverse(want)
			checkDests(t, c, k, want...)
			// Every one becomes something else, in place.
			ops = ops[:0]
			for i := range want {
				want[i] = Destination{Address: want[i].Address, Weight: uint32(i), Forward: Tunnel,
					Tunnel: TunnelOptions{TunnelGUE, uint16(i + 1), ChecksumOn}, UpperThreshold: uint32(i)}
				ops = append(ops, Op{Kind: OpUpdateDestination, Service: service(k), Destination: want[i]})
			}
			mustApply(t, c, ops...)
			checkDests(t, c, k, want...)
			key := DestinationKey{k, want[3].Address}
			if err := c.SetWeight(t.Context(), key, 4321); err != nil {
				t.Fatal(err)
			}
			want[3].Weight = 4321
			checkDests(t, c, k, want...)
			if err := c.DeleteDestination(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			checkDests(t, c, k, slices.Delete(want, 3, 4)...)
		})
	}
}

// TestKernelSameMark has one firewall mark for both families with nothing but
// tunneled servers. /proc/net/ip_vs does not tell the two apart; their order does.
func TestKernelSameMark(t *testing.T) {
	c, _ := kernelClient(t)
	type pair struct{ first, second Family }
	for i, p := range []pair{{IPv4, IPv6}, {IPv6, IPv4}} {
		mark := uint32(100 + i)
		mustApply(t, c,
			addService(service(MarkService(p.first, mark))),
			addService(service(MarkService(p.second, mark))),
			addDest(MarkService(IPv4, mark), dest(fmt.Sprintf("10.0.%d.4:0", i), Tunnel)),
			addDest(MarkService(IPv6, mark), dest(fmt.Sprintf("10.0.%d.6:0", i), Tunnel)))
	}
	got, err := c.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []DestinationCounts{
		counts(MarkService(IPv4, 100), "10.0.0.4:0", 1, 0, 0),
		counts(MarkService(IPv4, 101), "10.0.1.4:0", 1, 0, 0),
		counts(MarkService(IPv6, 100), "10.0.0.6:0", 1, 0, 0),
		counts(MarkService(IPv6, 101), "10.0.1.6:0", 1, 0, 0),
	}
	slices.SortFunc(got, func(a, b DestinationCounts) int { return a.Service.Compare(b.Service) })
	if diff := cmp.Diff(want, got, testOptions); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if err := c.DeleteService(t.Context(), MarkService(IPv4, 100)); err != nil {
		t.Fatal(err)
	}
	if got, err = c.Counts(t.Context()); err != nil || len(got) != 3 {
		t.Errorf("counts %v, %v; want three", got, err)
	}
	for _, d := range got {
		if d.Service == MarkService(IPv4, 100) {
			t.Errorf("counts of the deleted service: %+v", d)
		}
	}
}

// TestKernelCountsAgree compares the counts of the text with those of netlink.
func TestKernelCountsAgree(t *testing.T) {
	c, _ := kernelClient(t)
	keys := []ServiceKey{kernelV4, kernelV6, AddrService(UDP, kernelV4.Address), AddrService(SCTP, kernelV6.Address),
		MarkService(IPv4, 9), MarkService(IPv6, 9), MarkService(IPv6, 0xffffffff)}
	for i, k := range keys {
		s := service(k)
		s.Flags, s.Persistence = FlagPersistent|FlagOnePacket, Persistence{Timeout: maxTimeout}
		mustApply(t, c, addService(s))
		for n := range 3 {
			d := Destination{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), byte(n)}), 80),
				Weight: uint32(math.MaxInt32 - n), Forward: Route}
			if k.Family == IPv6 {
				d.Address = netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 14: byte(i), 15: byte(n)}), 80)
			}
			if k.FWMark == 0 {
				d.Address = netip.AddrPortFrom(d.Address.Addr(), k.Address.Port())
			}
			mustApply(t, c, addDest(k, d))
		}
	}
	var want []DestinationCounts
	for _, e := range mustTable(t, c) {
		for _, d := range e.Destinations {
			want = append(want, DestinationCounts{DestinationKey{e.ServiceKey, d.Address}, d.Weight, d.Conns})
		}
	}
	if len(want) != 3*len(keys) {
		t.Fatalf("%d real servers, want %d", len(want), 3*len(keys))
	}
	got, err := c.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// By service; the order within one is the kernel's in both.
	slices.SortStableFunc(got, func(a, b DestinationCounts) int { return a.Service.Compare(b.Service) })
	if diff := cmp.Diff(want, got, testOptions); diff != "" {
		t.Errorf("counts (-netlink +text):\n%s", diff)
	}
}
