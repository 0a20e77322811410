package ipvstest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/lbd-project/lbd/ipvs"
)

// servers are real servers that must come back as they were written, each in a
// service of its own family or in the other's.
func servers() map[string]struct {
	ipvs.Service
	ipvs.Destination
} {
	type pair = struct {
		ipvs.Service
		ipvs.Destination
	}
	mark, mark6 := markService(ipvs.IPv4, 0x12345), markService(ipvs.IPv6, 0x12345)
	return map[string]pair{
		"masquerading":                {web, server("10.0.0.1:80")},
		"masquerading, other port":    {web, server("10.0.0.1:8080")},
		"masquerading, highest port":  {web, server("10.0.0.1:65535")},
		"direct routing":              {web, server("10.0.0.1:80", forward(ipvs.Route))},
		"ipip":                        {web, server("10.0.0.1:80", forward(ipvs.Tunnel))},
		"gre":                         {web, server("10.0.0.1:80", tunnel(ipvs.TunnelGRE, 0, ipvs.ChecksumNone))},
		"gre with checksum":           {web, server("10.0.0.1:80", tunnel(ipvs.TunnelGRE, 0, ipvs.ChecksumOn))},
		"gue":                         {web, server("10.0.0.1:80", tunnel(ipvs.TunnelGUE, 6080, ipvs.ChecksumNone))},
		"gue with checksum":           {web, server("10.0.0.1:80", tunnel(ipvs.TunnelGUE, 0x1234, ipvs.ChecksumOn))},
		"gue with remote checksum":    {web, server("10.0.0.1:80", tunnel(ipvs.TunnelGUE, 65535, ipvs.ChecksumRemote))},
		"weight 0":                    {web, server("10.0.0.1:80", weight(0))},
		"weight 65535":                {web, server("10.0.0.1:80", weight(65535))},
		"highest weight":              {web, server("10.0.0.1:80", weight(math.MaxInt32))},
		"upper threshold":             {web, server("10.0.0.1:80", thresholds(100, 0))},
		"both thresholds":             {web, server("10.0.0.1:80", thresholds(100, 50))},
		"equal thresholds":            {web, server("10.0.0.1:80", thresholds(100, 100))},
		"highest thresholds":          {web, server("10.0.0.1:80", thresholds(math.MaxInt32, math.MaxInt32))},
		"loopback":                    {web, server("127.0.0.1:80")},
		"IPv6":                        {web6, server("[2001:db8:1::1]:80")},
		"IPv6 direct routing":         {web6, server("[2001:db8:1::1]:80", forward(ipvs.Route))},
		"IPv6 gue":                    {web6, server("[2001:db8:1::1]:80", tunnel(ipvs.TunnelGUE, 6080, ipvs.ChecksumNone))},
		"IPv6 loopback":               {web6, server("[::1]:80")},
		"IPv6 in IPv4":                {web, server("[2001:db8:1::1]:80", forward(ipvs.Tunnel))},
		"IPv4 in IPv6":                {web6, server("10.0.0.1:80", forward(ipvs.Tunnel))},
		"mark, port":                  {mark, server("10.0.0.1:80")},
		"mark, no port":               {mark, server("10.0.0.1:0")},
		"mark, IPv6":                  {mark6, server("[2001:db8:1::1]:0", forward(ipvs.Route))},
		"mark, IPv4 in IPv6":          {mark6, server("10.0.0.1:0", forward(ipvs.Tunnel))},
		"mark, IPv6 in IPv4 with gue": {mark, server("[2001:db8:1::1]:0", tunnel(ipvs.TunnelGUE, 6080, ipvs.ChecksumNone))},
	}
}

// destinationCases are about real servers.
var destinationCases = []testCase{
	{"real servers come back as written", func(s *subject) {
		for name, p := range servers() {
			s.Run(name, func(t *testing.T) {
				s := &subject{T: t, table: s.table}
				s.apply(addService(p.Service))
				if s.supports(add(p.Service, p.Destination)) {
					s.apply(add(p.Service, p.Destination))
					s.holds(entry{p.Service, []ipvs.Destination{p.Destination}})
					s.apply(remove(p.Service, p.Destination))
				}
				s.holds(entry{p.Service, nil})
				s.apply(deleteService(p.Service))
			})
		}
	}},
	{"the newest comes first", func(s *subject) {
		a, b, c := server("10.0.0.1:80"), server("10.0.0.2:80"), server("10.0.0.3:80")
		s.apply(addService(web), add(web, b), add(web, c), add(web, a))
		s.holds(entry{web, []ipvs.Destination{a, c, b}})
		heavy := server("10.0.0.2:80", weight(9))
		s.apply(update(web, heavy))
		s.holds(entry{web, []ipvs.Destination{a, c, heavy}})
		s.apply(remove(web, c), add(web, c))
		s.holds(entry{web, []ipvs.Destination{c, a, heavy}})
		s.apply(remove(web, heavy), remove(web, c), add(web, b))
		s.holds(entry{web, []ipvs.Destination{b, a}})
	}},
	{"ports and families are told apart", func(s *subject) {
		list := []ipvs.Destination{
			server("10.0.0.1:80", weight(1)),
			server("10.0.0.1:8080", weight(2)),
			server("10.0.0.2:80", weight(3)),
			server("[2001:db8:1::1]:80", forward(ipvs.Tunnel), weight(4)),
			server("[2001:db8:1::2]:80", forward(ipvs.Tunnel), weight(5)),
		}
		s.apply(addService(web))
		if !s.supports(add(web, list[3])) {
			// Without tunnels there is one family in a service.
			list[3], list[4] = server("10.0.0.3:80", weight(4)), server("10.0.0.3:81", weight(5))
		}
		var ops []ipvs.Op
		for _, d := range slices.Backward(list) {
			ops = append(ops, add(web, d))
		}
		s.apply(ops...)
		s.holds(entry{web, list})
		list[1].Weight, list[3].Weight = 20, 40
		s.apply(update(web, list[1]), update(web, list[3]))
		s.holds(entry{web, list})
		s.apply(remove(web, list[3]), remove(web, list[0]))
		s.holds(entry{web, []ipvs.Destination{list[1], list[2], list[4]}})
	}},
	{"the same real server in two services", func(s *subject) {
		udp := addrService(ipvs.UDP, "192.0.2.10:80")
		one, two := server("10.0.0.1:80"), server("10.0.0.1:80", weight(2))
		s.apply(addService(web), addService(udp), add(web, one), add(udp, one), update(udp, two))
		s.holds(entry{web, []ipvs.Destination{one}}, entry{udp, []ipvs.Destination{two}})
		s.apply(remove(web, one))
		s.holds(entry{web, nil}, entry{udp, []ipvs.Destination{two}})
	}},
	{"a real server is edited in place", func(s *subject) {
		base := server("10.0.0.1:80", tunnel(ipvs.TunnelGUE, 6080, ipvs.ChecksumOn), thresholds(100, 50), weight(2))
		first := server("10.0.0.2:80")
		s.apply(addService(web))
		if !s.supports(add(web, base)) {
			base.Forward, base.Tunnel = ipvs.Masq, ipvs.TunnelOptions{}
		}
		s.apply(add(web, base), add(web, first))
		for name, edit := range map[string]func(*ipvs.Destination){
			"weight":              weight(7),
			"weight 0":            weight(0),
			"upper threshold":     thresholds(200, 50),
			"lower threshold":     thresholds(100, 60),
			"no lower threshold":  thresholds(100, 0),
			"no thresholds":       thresholds(0, 0),
			"tunnel port":         tunnel(ipvs.TunnelGUE, 6081, ipvs.ChecksumOn),
			"tunnel checksum":     tunnel(ipvs.TunnelGUE, 6080, ipvs.ChecksumRemote),
			"no tunnel checksum":  tunnel(ipvs.TunnelGUE, 6080, ipvs.ChecksumNone),
			"gre":                 tunnel(ipvs.TunnelGRE, 0, ipvs.ChecksumOn),
			"ipip":                tunnel(ipvs.TunnelIPIP, 0, ipvs.ChecksumNone),
			"masquerading":        func(d *ipvs.Destination) { d.Forward, d.Tunnel = ipvs.Masq, ipvs.TunnelOptions{} },
			"direct routing":      func(d *ipvs.Destination) { d.Forward, d.Tunnel = ipvs.Route, ipvs.TunnelOptions{} },
			"everything left out": func(d *ipvs.Destination) { *d = ipvs.Destination{Address: d.Address} },
			"nothing":             func(*ipvs.Destination) {},
		} {
			s.Run(name, func(t *testing.T) {
				s := &subject{T: t, table: s.table}
				edited := base
				edit(&edited)
				if !s.supports(update(web, edited)) {
					return
				}
				s.apply(update(web, edited))
				s.holds(entry{web, []ipvs.Destination{first, edited}})
				s.apply(update(web, base))
				s.holds(entry{web, []ipvs.Destination{first, base}})
			})
		}
	}},
	{"a long list keeps its order", func(s *subject) {
		ops := []ipvs.Op{addService(web)}
		var list []ipvs.Destination
		for i := range 400 {
			d := server(fmt.Sprintf("10.0.%d.%d:80", i/200, i%200+1), weight(uint32(i)))
			ops, list = append(ops, add(web, d)), append(list, d)
		}
		slices.Reverse(list)
		s.apply(ops...)
		s.holds(entry{web, list})
	}},
}
