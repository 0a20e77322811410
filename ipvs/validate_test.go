package ipvs

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestValidateService(t *testing.T) {
	ap := netip.MustParseAddrPort
	with := func(change func(*Service)) Service {
		s := testService(80)
		change(&s)
		return s
	}
	persistent := func(p Persistence) Service {
		return with(func(s *Service) { s.Flags, s.Persistence = FlagPersistent, p })
	}
	for _, tt := range []struct {
		name string
		s    Service
		want string // part of the error; empty for none
		is   error
	}{
		{name: "plain", s: testService(80)},
		{name: "all flags", s: with(func(s *Service) { s.Flags, s.Persistence.Timeout = allFlags, time.Second })},
		{name: "port 0 persistent", s: with(func(s *Service) {
			s.ServiceKey, s.Flags, s.Persistence.Timeout = AddrService(TCP, ap("192.0.2.1:0")), FlagPersistent, time.Second
		})},
		{name: "fwmark port 0", s: Service{ServiceKey: MarkService(IPv6, 1), Scheduler: "rr"}},
		{name: "mask 0.0.0.0", s: persistent(Persistence{Timeout: time.Second, Netmask: NetmaskV4(netip.MustParseAddr("0.0.0.0"))})},
		{name: "mask with a hole", s: persistent(Persistence{Timeout: time.Second, Netmask: NetmaskV4(netip.MustParseAddr("255.0.255.0"))})},
		{name: "engine", s: persistent(Persistence{Timeout: maxTimeout, Engine: "sip"})},

		{name: "zero", s: Service{}, want: "address family 0", is: syscall.EAFNOSUPPORT},
		{name: "protocol 99", s: Service{ServiceKey: AddrService(99, ap("192.0.2.1:80")), Scheduler: "rr"}, want: "protocol 99"},
		{name: "protocol 0", s: Service{ServiceKey: AddrService(0, ap("192.0.2.1:80")), Scheduler: "rr"}, want: "protocol 0"},
		{name: "fwmark 0", s: Service{ServiceKey: MarkService(IPv4, 0), Scheduler: "rr"}, want: "neither an address nor a firewall mark"},
		{name: "both", s: with(func(s *Service) { s.FWMark = 7 }), want: "no protocol and no address"},
		{name: "other family", s: with(func(s *Service) { s.Family = IPv6 }), want: "address 192.0.2.10 is not ipv6"},
		{name: "mapped", s: with(func(s *Service) { s.Address = ap("[::ffff:192.0.2.10]:80") }), want: "address ::ffff:192.0.2.10 is not ipv4"},
		{name: "mapped as v6", s: with(func(s *Service) { s.Family, s.Address = IPv6, ap("[::ffff:192.0.2.10]:80") }), want: "write ::ffff:192.0.2.10 as 192.0.2.10"},
		{name: "0.0.0.0", s: Service{ServiceKey: AddrService(TCP, ap("0.0.0.0:80")), Scheduler: "rr"}, want: "address that clients connect to"},
		{name: "zone", s: with(func(s *Service) { s.ServiceKey = AddrService(TCP, ap("[fe80::1%lo]:80")) }), want: "zone"},
		{name: "port 0", s: testService(0), want: "port 0 needs persistence"},
		{name: "no scheduler", s: with(func(s *Service) { s.Scheduler = "" }), want: "no scheduler", is: ErrSchedulerNotFound},
		{name: "scheduler none", s: with(func(s *Service) { s.Scheduler = "none" }), want: "never schedules"},
		{name: "long scheduler", s: with(func(s *Service) { s.Scheduler = "0123456789abcdef" }), want: "longer than 15 bytes"},
		{name: "zero byte", s: with(func(s *Service) { s.Scheduler = "rr\x00" }), want: "zero byte"},
		{name: "long engine", s: persistent(Persistence{Timeout: 1, Engine: "0123456789abcdef"}), want: "longer than 15 bytes"},
		{name: "HASHED", s: with(func(s *Service) { s.Flags = serviceHashed }), want: "unknown service flags 0x2"},
		{name: "flag bit", s: with(func(s *Service) { s.Flags = 0x40 }), want: "unknown service flags 0x40"},
		{name: "timeout 0", s: persistent(Persistence{}), want: "timeout of 0"},
		{name: "timeout below 0", s: persistent(Persistence{Timeout: -time.Second}), want: "not between 0"},
		{name: "timeout huge", s: persistent(Persistence{Timeout: maxTimeout + time.Second}), want: "not between 0"},
		{name: "half a second", s: persistent(Persistence{Timeout: 1500 * time.Millisecond}), want: "whole seconds"},
		{name: "prefix 0", s: Service{ServiceKey: MarkService(IPv6, 1), Scheduler: "rr", Persistence: Persistence{Netmask: NetmaskV6(0)}}, want: "prefix length 0"},
		{name: "prefix 129", s: Service{ServiceKey: MarkService(IPv6, 1), Scheduler: "rr", Persistence: Persistence{Netmask: NetmaskV6(129)}}, want: "prefix length 129"},
	} {
		t.Run(tt.name, func(t *testing.T) { checkInvalid(t, tt.s.Validate(), tt.want, tt.is) })
	}
}

// checkInvalid checks for no error if want is empty.
func checkInvalid(t *testing.T, err error, want string, is error) {
	t.Helper()
	switch {
	case want == "" && err == nil:
		return
	case want == "" || err == nil || !strings.Contains(err.Error(), want):
		t.Fatalf("error %v, want %q", err, want)
	}
	if is == nil {
		is = syscall.EINVAL
	}
	if !errors.Is(err, is) {
		t.Errorf("error %v does not unwrap to %v", err, is)
	}
}

func TestValidateDestination(t *testing.T) {
	ap := netip.MustParseAddrPort
	web := testService(80).ServiceKey
	dest := func(addr string, change func(*Destination)) Destination {
		d := Destination{Address: ap(addr), Weight: 1}
		if change != nil {
			change(&d)
		}
		return d
	}
	tunnel := func(o TunnelOptions) func(*Destination) {
		return func(d *Destination) { d.Forward, d.Tunnel = Tunnel, o }
	}
	for _, tt := range []struct {
		name string
		k    ServiceKey
		d    Destination
		want string
		is   error
	}{
		{name: "masq other port", k: web, d: dest("10.0.0.2:8080", nil)},
		{name: "weight 0", k: web, d: dest("10.0.0.2:80", func(d *Destination) { d.Weight = 0 })},
		{name: "local", k: web, d: dest("10.0.0.2:80", func(d *Destination) { d.Forward = Local })},
		{name: "gue", k: web, d: dest("10.0.0.2:80", tunnel(TunnelOptions{TunnelGUE, 6080, ChecksumRemote}))},
		{name: "gre", k: web, d: dest("10.0.0.2:80", tunnel(TunnelOptions{Type: TunnelGRE, Checksum: ChecksumOn}))},
		{name: "v6 by tunnel", k: web, d: dest("[2001:db8::2]:80", tunnel(TunnelOptions{}))},
		{name: "route of a mark", k: MarkService(IPv4, 1), d: dest("10.0.0.2:8080", func(d *Destination) { d.Forward = Route })},
		{name: "route of port 0", k: testService(0).ServiceKey, d: dest("10.0.0.2:8080", func(d *Destination) { d.Forward = Route })},

		{name: "zero", k: web, d: Destination{}, want: "needs an address"},
		{name: "0.0.0.0", k: web, d: dest("0.0.0.0:80", nil), want: "not the address of a host"},
		{name: "broadcast", k: web, d: dest("255.255.255.255:80", nil), want: "not the address of a host"},
		{name: "multicast", k: web, d: dest("[ff02::1]:80", nil), want: "not the address of a host"},
		{name: "mapped", k: web, d: dest("[::ffff:10.0.0.2]:80", nil), want: "write"},
		{name: "zone", k: web, d: dest("[fe80::1%lo]:80", nil), want: "zone"},
		{name: "weight 2^31", k: web, d: dest("10.0.0.2:80", func(d *Destination) { d.Weight = 1 << 31 }), want: "weight", is: syscall.ERANGE},
		{name: "threshold 2^31", k: web, d: dest("10.0.0.2:80", func(d *Destination) { d.UpperThreshold = 1 << 31 }), want: "threshold"},
		{name: "lower above upper", k: web, d: dest("10.0.0.2:80", func(d *Destination) { d.LowerThreshold = 1 }), want: "lower threshold 1", is: syscall.ERANGE},
		{name: "bypass", k: web, d: dest("10.0.0.2:80", func(d *Destination) { d.Forward = Bypass }), want: "Bypass cannot be set"},
		{name: "method 7", k: web, d: dest("10.0.0.2:80", func(d *Destination) { d.Forward = 7 }), want: "method 7 cannot be set"},
		{name: "v6 by masq", k: web, d: dest("[2001:db8::2]:80", nil), want: "only the Tunnel method"},
		{name: "route other port", k: web, d: dest("10.0.0.2:8080", func(d *Destination) { d.Forward = Route }), want: "Route method cannot change port 80 to 8080"},
		{name: "tunnel other port", k: web, d: dest("10.0.0.2:8080", tunnel(TunnelOptions{})), want: "Tunnel method cannot change port"},
		{name: "gue on masq", k: web, d: dest("10.0.0.2:80", func(d *Destination) { d.Tunnel = TunnelOptions{Type: TunnelGUE, Port: 1} }), want: "need the Tunnel method"},
		{name: "type 9", k: web, d: dest("10.0.0.2:80", tunnel(TunnelOptions{Type: 9})), want: "unknown tunnel type 9"},
		{name: "gue without port", k: web, d: dest("10.0.0.2:80", tunnel(TunnelOptions{Type: TunnelGUE})), want: "gue tunnel needs a port"},
		{name: "gre with port", k: web, d: dest("10.0.0.2:80", tunnel(TunnelOptions{Type: TunnelGRE, Port: 1})), want: "gre tunnel has no port"},
		{name: "checksum 3", k: web, d: dest("10.0.0.2:80", tunnel(TunnelOptions{Type: TunnelGRE, Checksum: 3})), want: "unknown tunnel checksum"},
		{name: "ipip checksum", k: web, d: dest("10.0.0.2:80", tunnel(TunnelOptions{Checksum: ChecksumOn})), want: "ipip tunnel has no checksum"},
		{name: "gre remote checksum", k: web, d: dest("10.0.0.2:80", tunnel(TunnelOptions{Type: TunnelGRE, Checksum: ChecksumRemote})), want: "only a gue tunnel"},
	} {
		t.Run(tt.name, func(t *testing.T) { checkInvalid(t, tt.d.Validate(tt.k), tt.want, tt.is) })
	}
}

// TestValidateDelete takes every key that the kernel can hold, whoever made it.
func TestValidateDelete(t *testing.T) {
	ap := netip.MustParseAddrPort
	for _, k := range []ServiceKey{
		testService(80).ServiceKey,
		AddrService(99, ap("192.0.2.1:80")),
		AddrService(TCP, ap("0.0.0.0:0")),
		{Family: IPv6, Protocol: TCP, Address: ap("[::ffff:192.0.2.1]:80")},
		MarkService(IPv6, 7),
	} {
		checkInvalid(t, (Op{Kind: OpDeleteService, Service: Service{ServiceKey: k}}).Validate(), "", nil)
		for _, a := range []string{"10.0.0.1:0", "224.0.0.1:80", "[::ffff:10.0.0.1]:80"} {
			checkInvalid(t, (Op{Kind: OpDeleteDestination, Service: Service{ServiceKey: k},
				Destination: Destination{Address: ap(a), Forward: 9, LowerThreshold: 1}}).Validate(), "", nil)
		}
	}
	checkInvalid(t, (Op{Kind: OpDeleteService}).Validate(), "address family", syscall.EAFNOSUPPORT)
	checkInvalid(t, (Op{Kind: OpDeleteDestination, Service: testService(80)}).Validate(), "needs an address", nil)
	checkInvalid(t, (Op{Kind: OpDeleteDestination, Service: testService(80),
		Destination: Destination{Address: ap("[fe80::1%lo]:80")}}).Validate(), "zone", nil)
}

func TestValidateOthers(t *testing.T) {
	checkInvalid(t, (Op{Kind: OpAddDestination, Destination: testDest(1)}).Validate(), "address family", syscall.EAFNOSUPPORT)
	checkInvalid(t, Timeouts{TCP: -1}.Validate(), "tcp timeout", nil)
	checkInvalid(t, Timeouts{UDP: 1<<31*time.Second + 1}.Validate(), "udp timeout", nil)
	checkInvalid(t, Timeouts{TCPFin: time.Millisecond}.Validate(), "tcp fin timeout 1ms is not in whole seconds", nil)
	checkInvalid(t, SyncDaemon{Interface: "lo"}.Validate(), "neither master nor backup", nil)
	checkInvalid(t, SyncDaemon{State: SyncMaster}.Validate(), "needs an interface", nil)
	checkInvalid(t, SyncDaemon{State: SyncMaster, Interface: "0123456789abcdef"}.Validate(), "longer than 15", nil)
	checkInvalid(t, SyncDaemon{State: SyncMaster, Interface: "lo", Group: netip.MustParseAddr("10.0.0.1")}.Validate(), "multicast group", nil)
	checkInvalid(t, SyncDaemon{State: SyncBackup, Interface: "lo", Group: netip.MustParseAddr("ff02::81")}.Validate(), "", nil)
}
