package ipvs

import (
	"net/netip"
	"testing"
)

// manyServices returns n services of every kind with one to three real servers
// each, and n/10 without any. All have the same addresses in each namespace.
func manyServices(n int) (ops []Op) {
	var services []Service
	for i := range n {
		a4 := netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)})
		a6 := netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 14: byte(i >> 8), 15: byte(i)})
		var k ServiceKey
		switch i % 4 {
		case 0, 1:
			k = AddrService(TCP, netip.AddrPortFrom(a4, 80))
		case 2:
			k = AddrService(UDP, netip.AddrPortFrom(a6, 53))
		case 3:
			// Each mark for both families.
			k = MarkService(IPv4, uint32(i/8+1))
			if i%8 == 3 {
				k.Family = IPv6
			}
		}
		services = append(services, service(k))
	}
	for i, s := range services {
		ops = append(ops, addService(s))
		if i%10 == 0 {
			continue
		}
		for j := range i%3 + 1 {
			d := dest("10.0.0.1:80", Tunnel)
			d.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(j + 1), byte(i >> 8), byte(i)}), s.Address.Port())
			d.Weight = uint32(i)
			ops = append(ops, addDest(s.ServiceKey, d))
		}
	}
	return ops
}

// checkCounts compares Counts with the netlink table.
func checkCounts(t *testing.T, c *Client) {
	t.Helper()
	list, err := c.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[DestinationKey]DestinationCounts)
	for _, d := range list {
		got[d.DestinationKey] = d
	}
	missing := 0
	for _, e := range mustTable(t, c) {
		for _, d := range e.Destinations {
			k := DestinationKey{e.ServiceKey, d.Address}
			g, ok := got[k]
			if !ok {
				missing++
			} else if want := (DestinationCounts{k, d.Weight, d.Conns}); g != want {
				t.Errorf("%v, want %v", g, want)
			}
			delete(got, k)
		}
	}
	if missing > 0 || len(got) > 0 {
		t.Errorf("%d of the table's real servers are missing and %d are not in it", missing, len(got))
	}
}

// TestKernelCountsNamespaces has services in other namespaces, among which the
// kernel loses its place in /proc/net/ip_vs after each 4 KiB.
func TestKernelCountsNamespaces(t *testing.T) {
	const n = 400
	c, _ := kernelClient(t)
	mustApply(t, c, manyServices(n)...)
	checkCounts(t, c)
	other, _ := kernelClient(t)
	mustApply(t, other, manyServices(n)...)
	checkCounts(t, c)
	checkCounts(t, other)
}
