package reconcile

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// equal compares netip values and unexported masks by ==.
var equal = cmp.Options{
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b ipvs.Netmask) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

func service(address string) ipvs.Service {
	return ipvs.Service{
		ServiceKey: ipvs.AddrService(ipvs.TCP, netip.MustParseAddrPort(address)),
		Scheduler:  "wlc",
	}
}

func destination(address string, weight uint32) ipvs.Destination {
	return ipvs.Destination{Address: netip.MustParseAddrPort(address), Weight: weight}
}

func owned(services ...ipvs.Service) map[ipvs.ServiceKey]struct{} {
	m := make(map[ipvs.ServiceKey]struct{})
	for _, s := range services {
		m[s.ServiceKey] = struct{}{}
	}
	return m
}

// entry is an engine's service with its real servers in list order.
func entry(s ipvs.Service, list ...ipvs.Destination) ipvs.TableEntry {
	e := ipvs.TableEntry{ServiceStatus: ipvs.ServiceStatus{Service: s}}
	for _, d := range list {
		e.Destinations = append(e.Destinations, ipvs.DestinationStatus{Destination: d})
	}
	return e
}

func wantService(s ipvs.Service, list ...ipvs.Destination) DesiredService {
	return DesiredService{Service: s, Destinations: list}
}

func TestDiff(t *testing.T) {
	web, mail := service("192.0.2.10:80"), service("192.0.2.10:25")
	a, b, c := destination("10.0.0.1:80", 1), destination("10.0.0.2:80", 2), destination("10.0.0.3:80", 3)
	webUDP := web
	webUDP.Protocol = ipvs.UDP
	webRR := web
	webRR.Scheduler = "rr"
	aQuiet, aMoved := destination("10.0.0.1:80", 0), destination("10.0.0.1:8080", 1)
	bQuiet := destination("10.0.0.2:80", 0)
	op := func(k ipvs.OpKind, s ipvs.Service, d ...ipvs.Destination) ipvs.Op {
		o := ipvs.Op{Kind: k, Service: s}
		if len(d) > 0 {
			o.Destination = d[0]
		}
		return o
	}
	for _, tt := range []struct {
		name    string
		desired Desired
		actual  []ipvs.TableEntry
		want    []ipvs.Op
	}{{
		name: "nothing",
	}, {
		name:    "a new service is filled from the last server to the first",
		desired: Desired{Services: []DesiredService{wantService(web, a, b, c)}},
		want: []ipvs.Op{op(ipvs.OpAddService, web), op(ipvs.OpAddDestination, web, c),
			op(ipvs.OpAddDestination, web, b), op(ipvs.OpAddDestination, web, a)},
	}, {
		name:    "services come in the order of the file",
		desired: Desired{Services: []DesiredService{wantService(web), wantService(mail)}},
		want:    []ipvs.Op{op(ipvs.OpAddService, web), op(ipvs.OpAddService, mail)},
	}, {
		name:    "what is right is adopted in any order",
		desired: Desired{Services: []DesiredService{wantService(web, a, b), wantService(mail)}},
		actual:  []ipvs.TableEntry{entry(mail), entry(web, a, b)},
	}, {
		name:    "an empty service is filled from the last server to the first",
		desired: Desired{Services: []DesiredService{wantService(web, a, b)}},
		actual:  []ipvs.TableEntry{entry(web)},
		want:    []ipvs.Op{op(ipvs.OpAddDestination, web, b), op(ipvs.OpAddDestination, web, a)},
	}, {
		name:    "attributes are edited in place",
		desired: Desired{Services: []DesiredService{wantService(webRR, a, b)}},
		actual:  []ipvs.TableEntry{entry(web, bQuiet, a)},
		want:    []ipvs.Op{op(ipvs.OpUpdateService, webRR), op(ipvs.OpUpdateDestination, webRR, b)},
	}, {
		// A2: the engine's weight is never taken for the wanted one.
		name:    "a weight of 0 left by an earlier lbd is raised",
		desired: Desired{Services: []DesiredService{wantService(web, a)}, Owned: owned(web)},
		actual:  []ipvs.TableEntry{entry(web, aQuiet)},
		want:    []ipvs.Op{op(ipvs.OpUpdateDestination, web, a)},
	}, {
		name:    "one server takes over from the other with no moment without",
		desired: Desired{Services: []DesiredService{wantService(web, aQuiet, b)}},
		actual:  []ipvs.TableEntry{entry(web, a, bQuiet)},
		want:    []ipvs.Op{op(ipvs.OpUpdateDestination, web, b), op(ipvs.OpUpdateDestination, web, aQuiet)},
	}, {
		name:    "adds, edits, deletes",
		desired: Desired{Services: []DesiredService{wantService(web, bQuiet, c)}},
		actual:  []ipvs.TableEntry{entry(web, a, b)},
		want: []ipvs.Op{op(ipvs.OpAddDestination, web, c), op(ipvs.OpUpdateDestination, web, bQuiet),
			op(ipvs.OpDeleteDestination, web, a)},
	}, {
		// A24: the port is identity.
		name:    "another port is another real server",
		desired: Desired{Services: []DesiredService{wantService(web, aMoved)}},
		actual:  []ipvs.TableEntry{entry(web, a)},
		want:    []ipvs.Op{op(ipvs.OpAddDestination, web, aMoved), op(ipvs.OpDeleteDestination, web, a)},
	}, {
		// A15: the protocol is identity.
		name:    "another protocol is another service",
		desired: Desired{Services: []DesiredService{wantService(webUDP, a)}, Owned: owned(web)},
		actual:  []ipvs.TableEntry{entry(web, a)},
		want: []ipvs.Op{op(ipvs.OpAddService, webUDP), op(ipvs.OpAddDestination, webUDP, a),
			op(ipvs.OpDeleteService, web)},
	}, {
		// F17
		name:    "foreign services are left alone",
		desired: Desired{Services: []DesiredService{wantService(web)}, Owned: owned(web)},
		actual:  []ipvs.TableEntry{entry(mail, a), entry(web)},
	}, {
		name:    "exclusive removes foreign services",
		desired: Desired{Services: []DesiredService{wantService(web)}, Exclusive: true},
		actual:  []ipvs.TableEntry{entry(mail, a), entry(web)},
		want:    []ipvs.Op{op(ipvs.OpDeleteService, mail)},
	}, {
		name:    "the zero Desired changes nothing",
		actual:  []ipvs.TableEntry{entry(mail, a), entry(web)},
		desired: Desired{},
	}, {
		name:    "owning alone removes: how lbd clears",
		desired: Desired{Owned: owned(web, webUDP)},
		actual:  []ipvs.TableEntry{entry(mail), entry(web, a)},
		want:    []ipvs.Op{op(ipvs.OpDeleteService, web)},
	}, {
		// F7: a dump that the table changed under may hold an entry twice.
		name:    "entries read twice count once",
		desired: Desired{Services: []DesiredService{wantService(web, a)}, Owned: owned(mail)},
		actual:  []ipvs.TableEntry{entry(web, a, b, a, b), entry(web), entry(mail), entry(mail)},
		want:    []ipvs.Op{op(ipvs.OpDeleteDestination, web, b), op(ipvs.OpDeleteService, mail)},
	}} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Diff(tt.desired, tt.actual), equal); diff != "" {
				t.Errorf("Diff (-want +got):\n%s", diff)
			}
		})
	}
}

// F6: what an engine gives back is not always what was written.
func TestDiffKnowsEqualForms(t *testing.T) {
	v6 := ipvs.Service{Scheduler: "rr",
		ServiceKey: ipvs.AddrService(ipvs.TCP, netip.MustParseAddrPort("[2001:db8::10]:80"))}
	v4 := service("192.0.2.10:80")
	mark := ipvs.Service{ServiceKey: ipvs.MarkService(ipvs.IPv4, 0x12345), Scheduler: "wlc"}
	with := func(s ipvs.Service, edit func(*ipvs.Service)) ipvs.Service { edit(&s); return s }
	gre := func(port uint16) ipvs.Destination {
		d := destination("10.0.0.1:80", 1)
		d.Forward, d.Tunnel = ipvs.Tunnel, ipvs.TunnelOptions{Type: ipvs.TunnelGRE, Port: port}
		return d
	}
	for _, tt := range []struct {
		name         string
		want, actual ipvs.Service
	}{
		{"v4 netmask spelled out", v4, with(v4, func(s *ipvs.Service) {
			s.Persistence.Netmask = ipvs.NetmaskV4(netip.MustParseAddr("255.255.255.255"))
		})},
		{"v6 prefix spelled out", v6, with(v6, func(s *ipvs.Service) { s.Persistence.Netmask = ipvs.NetmaskV6(128) })},
		{"time-out of a service without persistence", v4, with(v4, func(s *ipvs.Service) { s.Persistence.Timeout = time.Hour })},
		{"part of a second", with(v4, func(s *ipvs.Service) {
			s.Flags, s.Persistence.Timeout = ipvs.FlagPersistent, 1500*time.Millisecond
		}), with(v4, func(s *ipvs.Service) {
			s.Flags, s.Persistence.Timeout = ipvs.FlagPersistent, time.Second
		})},
		{"protocol of a mark", mark, with(mark, func(s *ipvs.Service) { s.Protocol = ipvs.TCP })},
		{"mapped address", v4, with(v4, func(s *ipvs.Service) {
			s.Address = netip.MustParseAddrPort("[::ffff:192.0.2.10]:80")
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if ops := Diff(Desired{Services: []DesiredService{wantService(tt.want)}}, []ipvs.TableEntry{entry(tt.actual)}); len(ops) > 0 {
				t.Errorf("Diff: %v; want nothing", ops)
			}
			if ops := Diff(Desired{Services: []DesiredService{wantService(tt.actual)}}, []ipvs.TableEntry{entry(tt.want)}); len(ops) > 0 {
				t.Errorf("Diff the other way: %v; want nothing", ops)
			}
		})
	}
	masq := destination("10.0.0.1:80", 1)
	masq.Tunnel = ipvs.TunnelOptions{Type: ipvs.TunnelGUE, Port: 6080}
	for _, tt := range []struct {
		name         string
		want, actual ipvs.Destination
	}{
		{"tunnel options of masquerading", destination("10.0.0.1:80", 1), masq},
		{"port of gre", gre(0), gre(7)},
		{"mapped address", destination("10.0.0.1:80", 1), destination("[::ffff:10.0.0.1]:80", 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if ops := Diff(Desired{Services: []DesiredService{wantService(v4, tt.want)}}, []ipvs.TableEntry{entry(v4, tt.actual)}); len(ops) > 0 {
				t.Errorf("Diff: %v; want nothing", ops)
			}
		})
	}
}

// A14: every attribute, alone, is edited in place by one operation, and then the
// table is right.
func TestDiffEditsEachAttribute(t *testing.T) {
	base := service("192.0.2.10:80")
	base.Flags, base.Persistence.Timeout = ipvs.FlagPersistent, time.Minute
	server := destination("10.0.0.1:80", 2)
	server.Forward, server.Tunnel = ipvs.Tunnel, ipvs.TunnelOptions{Type: ipvs.TunnelGUE, Port: 6080}
	server.UpperThreshold, server.LowerThreshold = 100, 50

	edits := []struct {
		name string
		edit func(*DesiredService)
		kind ipvs.OpKind
	}{
		{"scheduler", func(s *DesiredService) { s.Scheduler = "rr" }, ipvs.OpUpdateService},
		{"one packet", func(s *DesiredService) { s.Flags |= ipvs.FlagOnePacket }, ipvs.OpUpdateService},
		{"fallback", func(s *DesiredService) { s.Flags |= ipvs.FlagSHFallback }, ipvs.OpUpdateService},
		{"port", func(s *DesiredService) { s.Flags |= ipvs.FlagSHPort }, ipvs.OpUpdateService},
		{"third flag", func(s *DesiredService) { s.Flags |= ipvs.FlagSched3 }, ipvs.OpUpdateService},
		{"no persistence", func(s *DesiredService) { s.Flags = 0 }, ipvs.OpUpdateService},
		{"persistence timeout", func(s *DesiredService) { s.Persistence.Timeout = time.Hour }, ipvs.OpUpdateService},
		{"netmask", func(s *DesiredService) {
			s.Persistence.Netmask = ipvs.NetmaskV4(netip.MustParseAddr("255.255.255.0"))
		}, ipvs.OpUpdateService},
		{"netmask 0.0.0.0", func(s *DesiredService) {
			s.Persistence.Netmask = ipvs.NetmaskV4(netip.MustParseAddr("0.0.0.0"))
		}, ipvs.OpUpdateService},
		{"engine", func(s *DesiredService) { s.Persistence.Engine = "sip" }, ipvs.OpUpdateService},
		{"weight", func(s *DesiredService) { s.Destinations[0].Weight = 3 }, ipvs.OpUpdateDestination},
		{"weight 0", func(s *DesiredService) { s.Destinations[0].Weight = 0 }, ipvs.OpUpdateDestination},
		{"forwarding", func(s *DesiredService) { s.Destinations[0].Forward = ipvs.Route }, ipvs.OpUpdateDestination},
		{"tunnel type", func(s *DesiredService) { s.Destinations[0].Tunnel.Type = ipvs.TunnelGRE }, ipvs.OpUpdateDestination},
		{"tunnel port", func(s *DesiredService) { s.Destinations[0].Tunnel.Port = 6081 }, ipvs.OpUpdateDestination},
		{"tunnel checksum", func(s *DesiredService) { s.Destinations[0].Tunnel.Checksum = ipvs.ChecksumOn }, ipvs.OpUpdateDestination},
		{"upper threshold", func(s *DesiredService) { s.Destinations[0].UpperThreshold = 200 }, ipvs.OpUpdateDestination},
		{"lower threshold", func(s *DesiredService) { s.Destinations[0].LowerThreshold = 60 }, ipvs.OpUpdateDestination},
	}
	for _, tt := range edits {
		t.Run(tt.name, func(t *testing.T) {
			ctx, f := t.Context(), ipvstest.New()
			if err := f.Apply(ctx, Diff(Desired{Services: []DesiredService{wantService(base, server)}}, nil)); err != nil {
				t.Fatal(err)
			}
			s := wantService(base, server)
			tt.edit(&s)
			desired := Desired{Services: []DesiredService{s}}
			plan := Plan(desired, table(t, f))
			if len(plan) != 1 || plan[0].Kind != tt.kind {
				t.Fatalf("Plan: %v; want one %v", plan, tt.kind)
			}
			if plan[0].Describe() == "" {
				t.Error("Describe says nothing")
			}
			if err := f.Apply(ctx, []ipvs.Op{plan[0].Op}); err != nil {
				t.Fatal(err)
			}
			if ops := Diff(desired, table(t, f)); len(ops) > 0 {
				t.Errorf("after the edit: %v; want nothing", ops)
			}
		})
	}
}

func table(t *testing.T, f *ipvstest.Fake) []ipvs.TableEntry {
	t.Helper()
	entries, err := f.Table(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return entries
}
