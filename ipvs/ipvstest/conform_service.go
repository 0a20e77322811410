package ipvstest

import (
	"net/netip"
	"testing"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// persistent makes a service persistent.
func persistent(s ipvs.Service, timeout time.Duration, mask ipvs.Netmask) ipvs.Service {
	s.Flags |= ipvs.FlagPersistent
	s.Persistence.Timeout, s.Persistence.Netmask = timeout, mask
	return s
}

func maskV4(m string) ipvs.Netmask { return ipvs.NetmaskV4(netip.MustParseAddr(m)) }

func with(s ipvs.Service, edit func(*ipvs.Service)) ipvs.Service {
	edit(&s)
	return s
}

// kinds are services that must come back as they were written.
func kinds() map[string]ipvs.Service {
	flags := func(base ipvs.Service, scheduler ipvs.Scheduler, f ipvs.ServiceFlags) ipvs.Service {
		base.Scheduler, base.Flags = scheduler, f
		return base
	}
	udp := addrService(ipvs.UDP, "192.0.2.10:53")
	return map[string]ipvs.Service{
		"TCP":                         web,
		"UDP":                         udp,
		"SCTP":                        addrService(ipvs.SCTP, "192.0.2.10:5060"),
		"IPv6":                        web6,
		"UDP IPv6":                    addrService(ipvs.UDP, "[2001:db8::10]:53"),
		"port 65535":                  addrService(ipvs.TCP, "192.0.2.10:65535"),
		"every port":                  persistent(addrService(ipvs.TCP, "192.0.2.10:0"), time.Minute, ipvs.Netmask{}),
		"mark of more than 16 bits":   markService(ipvs.IPv4, 0x12345),
		"mark of 32 bits":             markService(ipvs.IPv4, 0xfffffffe),
		"IPv6 mark":                   markService(ipvs.IPv6, 0x12345),
		"persistent mark":             persistent(markService(ipvs.IPv6, 1), time.Minute, ipvs.NetmaskV6(64)),
		"one packet":                  flags(udp, "rr", ipvs.FlagOnePacket),
		"sh with fallback":            flags(web, "sh", ipvs.FlagSHFallback),
		"sh with port":                flags(web, "sh", ipvs.FlagSHPort),
		"mh with fallback and port":   flags(web, "mh", ipvs.FlagMHFallback|ipvs.FlagMHPort),
		"third scheduler flag":        flags(web, "rr", ipvs.FlagSched3),
		"all flags":                   persistent(flags(udp, "sh", ipvs.FlagOnePacket|ipvs.FlagSHFallback|ipvs.FlagSHPort|ipvs.FlagSched3), time.Second, ipvs.Netmask{}),
		"persistent":                  persistent(web, 5*time.Minute, ipvs.Netmask{}),
		"persistent by network":       persistent(web, time.Hour, maskV4("255.255.255.0")),
		"persistent for all together": persistent(web, time.Hour, maskV4("0.0.0.0")),
		"mask with holes":             persistent(web, time.Hour, maskV4("255.0.255.1")),
		"mask spelled out":            persistent(web, time.Hour, maskV4("255.255.255.255")),
		"persistent IPv6":             persistent(web6, time.Minute, ipvs.Netmask{}),
		"shortest prefix":             persistent(web6, time.Minute, ipvs.NetmaskV6(1)),
		"prefix":                      persistent(web6, time.Minute, ipvs.NetmaskV6(56)),
		"prefix spelled out":          persistent(web6, time.Minute, ipvs.NetmaskV6(128)),
		"longest timeout":             persistent(web, 2_000_000*time.Second, ipvs.Netmask{}),
		"persistence engine": with(persistent(udp, time.Minute, ipvs.Netmask{}), func(s *ipvs.Service) {
			s.Persistence.Engine = "sip"
		}),
	}
}

// serviceCases are about virtual services.
var serviceCases = []testCase{
	{"services come back as written", func(s *subject) {
		for name, sv := range kinds() {
			s.Run(name, func(t *testing.T) {
				s := &subject{T: t, table: s.table}
				if !s.supports(addService(sv)) {
					return
				}
				s.apply(addService(sv))
				s.holds(entry{sv, nil})
				s.apply(deleteService(sv))
				s.holds()
			})
		}
	}},
	{"schedulers", func(s *subject) {
		for _, name := range []ipvs.Scheduler{"rr", "wrr", "lc", "wlc", "sh", "mh", "sed", "nq"} {
			sv := web
			sv.Scheduler = name
			s.apply(addService(sv))
			s.holds(entry{sv, nil})
			s.apply(deleteService(sv))
		}
	}},
	{"keys are told apart", func(s *subject) {
		var ops []ipvs.Op
		var want []entry
		for i, sv := range []ipvs.Service{
			web,
			addrService(ipvs.UDP, "192.0.2.10:80"),
			addrService(ipvs.SCTP, "192.0.2.10:80"),
			addrService(ipvs.TCP, "192.0.2.10:81"),
			addrService(ipvs.TCP, "192.0.2.11:80"),
			web6,
			markService(ipvs.IPv4, 7),
			markService(ipvs.IPv6, 7),
			markService(ipvs.IPv4, 0x10007), // 7 in 16 bits
		} {
			d := server("10.0.0.1:80", weight(uint32(i)))
			if sv.Family == ipvs.IPv6 {
				d = server("[2001:db8:1::1]:80", weight(uint32(i)))
			}
			ops = append(ops, addService(sv), add(sv, d))
			want = append(want, entry{sv, []ipvs.Destination{d}})
		}
		s.apply(ops...)
		s.holds(want...)
		s.apply(deleteService(markService(ipvs.IPv4, 7)))
		s.holds(append(want[:6:6], want[7:]...)...)
	}},
	{"a service is edited in place", func(s *subject) {
		servers := []ipvs.Destination{server("10.0.0.2:80"), server("10.0.0.1:80", weight(3))}
		base := persistent(web, time.Minute, maskV4("255.255.255.0"))
		s.apply(addService(base), add(base, servers[1]), add(base, servers[0]))
		for name, edit := range map[string]func(*ipvs.Service){
			"scheduler":           func(sv *ipvs.Service) { sv.Scheduler = "rr" },
			"flag set":            func(sv *ipvs.Service) { sv.Flags |= ipvs.FlagSHPort },
			"persistence off":     func(sv *ipvs.Service) { sv.Flags, sv.Persistence = 0, ipvs.Persistence{} },
			"persistence timeout": func(sv *ipvs.Service) { sv.Persistence.Timeout = time.Hour },
			"netmask":             func(sv *ipvs.Service) { sv.Persistence.Netmask = maskV4("0.0.0.0") },
			"netmask to default":  func(sv *ipvs.Service) { sv.Persistence.Netmask = ipvs.Netmask{} },
			"engine":              func(sv *ipvs.Service) { sv.Persistence.Engine = "sip" },
			"nothing":             func(*ipvs.Service) {},
		} {
			s.Run(name, func(t *testing.T) {
				s := &subject{T: t, table: s.table}
				edited := with(base, edit)
				if !s.supports(updateService(edited)) {
					return
				}
				s.apply(updateService(edited))
				s.holds(entry{edited, servers})
				s.apply(updateService(base))
				s.holds(entry{base, servers})
			})
		}
	}},
	{"an edit replaces everything", func(s *subject) {
		full := persistent(web, time.Hour, maskV4("255.255.0.0"))
		full.Flags |= ipvs.FlagOnePacket | ipvs.FlagSched1 | ipvs.FlagSched2 | ipvs.FlagSched3
		full.Persistence.Engine = "sip"
		if !s.supports(addService(full)) {
			full.Persistence.Engine = ""
		}
		s.apply(addService(full), updateService(web))
		s.holds(entry{web, nil})
	}},
	{"IPv6 prefix is edited", func(s *subject) {
		long, short := persistent(web6, time.Minute, ipvs.NetmaskV6(128)), persistent(web6, time.Minute, ipvs.NetmaskV6(48))
		s.apply(addService(long), updateService(short))
		s.holds(entry{short, nil})
		s.apply(updateService(long))
		s.holds(entry{long, nil})
	}},
	{"a deleted service takes its real servers along", func(s *subject) {
		d := server("10.0.0.1:80")
		other := addrService(ipvs.TCP, "192.0.2.11:80")
		s.apply(addService(web), addService(other), add(web, d), add(other, d), deleteService(web))
		s.holds(entry{other, []ipvs.Destination{d}})
		s.apply(addService(web))
		s.holds(entry{web, nil}, entry{other, []ipvs.Destination{d}})
	}},
}
