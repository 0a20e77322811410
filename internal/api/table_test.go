package api

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/ipvs"
)

func TestTableService(t *testing.T) {
	stats := ipvs.Stats{
		Connections: 1, PacketsIn: 2, PacketsOut: 3, BytesIn: 4, BytesOut: 5,
		ConnectionRate: 6, PacketRateIn: 7, PacketRateOut: 8, ByteRateIn: 9, ByteRateOut: 10,
	}
	wantStats := Stats{
		Connections: 1, PacketsIn: 2, PacketsOut: 3, BytesIn: 4, BytesOut: 5,
		ConnectionRate: 6, PacketRateIn: 7, PacketRateOut: 8, ByteRateIn: 9, ByteRateOut: 10,
	}
	destination := func(addr string, d ipvs.Destination) ipvs.DestinationStatus {
		d.Address = netip.MustParseAddrPort(addr)
		return ipvs.DestinationStatus{Destination: d, Conns: ipvs.Conns{Active: 1, Inactive: 2, Persistent: 3}, Stats: stats}
	}
	server := func(addr, forward, tunnel string) RealServer {
		return RealServer{
			Address: addr, Forward: forward, Tunnel: tunnel, Active: 1, Inactive: 2, Persistent: 3,
			Present: true, State: "unchecked", Checks: []Check{}, Stats: wantStats,
		}
	}
	entry := func(s ipvs.Service, d ...ipvs.DestinationStatus) ipvs.TableEntry {
		return ipvs.TableEntry{ServiceStatus: ipvs.ServiceStatus{Service: s, Stats: stats}, Destinations: d}
	}
	weighted := server("10.0.0.2:80", "Masq", "")
	weighted.ProgrammedWeight, weighted.UpperThreshold, weighted.LowerThreshold = 3, 100, 75

	v4 := ipvs.AddrService(ipvs.TCP, netip.MustParseAddrPort("192.0.2.10:80"))
	v6 := ipvs.AddrService(ipvs.UDP, netip.MustParseAddrPort("[2001:db8::10]:53"))
	tests := []struct {
		name string
		in   ipvs.TableEntry
		want Service
	}{
		{
			"plain", entry(ipvs.Service{ServiceKey: v4, Scheduler: "wlc"},
				destination("10.0.0.2:80", ipvs.Destination{Weight: 3, UpperThreshold: 100, LowerThreshold: 75}),
				destination("10.0.0.3:80", ipvs.Destination{Forward: ipvs.Route})),
			Service{
				Key: "TCP 192.0.2.10:80", Protocol: "TCP", Address: "192.0.2.10:80", Family: "ipv4", Scheduler: "wlc",
				Flags: []string{}, Stats: wantStats, RealServers: []RealServer{weighted, server("10.0.0.3:80", "Route", "")},
			},
		},
		{
			"persistent", entry(ipvs.Service{
				ServiceKey: v4, Scheduler: "rr", Flags: ipvs.FlagPersistent | ipvs.FlagSched1 | ipvs.FlagSched3,
				Persistence: ipvs.Persistence{Timeout: 5 * time.Minute, Netmask: ipvs.NetmaskV4(netip.MustParseAddr("255.255.0.0"))},
			}),
			Service{
				Key: "TCP 192.0.2.10:80", Protocol: "TCP", Address: "192.0.2.10:80", Family: "ipv4", Scheduler: "rr",
				Flags: []string{"flag-1", "flag-3"}, PersistenceSeconds: 300, Netmask: "255.255.0.0",
				Stats: wantStats, RealServers: []RealServer{},
			},
		},
		{
			"IPv6 with every flag", entry(ipvs.Service{
				ServiceKey: v6, Scheduler: "sh",
				Flags:       ipvs.FlagPersistent | ipvs.FlagOnePacket | ipvs.FlagSHFallback | ipvs.FlagSHPort | ipvs.FlagSched3,
				Persistence: ipvs.Persistence{Timeout: time.Second, Engine: "sip"},
			}, destination("10.0.0.2:53", ipvs.Destination{Forward: ipvs.Tunnel})),
			Service{
				Key: "UDP [2001:db8::10]:53", Protocol: "UDP", Address: "[2001:db8::10]:53", Family: "ipv6", Scheduler: "sh",
				Flags: []string{"sh-fallback", "sh-port", "flag-3", "ops"}, PersistenceSeconds: 1, Netmask: "128",
				PersistenceEngine: "sip", Stats: wantStats, RealServers: []RealServer{server("10.0.0.2:53", "Tunnel", "ipip")},
			},
		},
		{
			"mark", entry(ipvs.Service{ServiceKey: ipvs.MarkService(ipvs.IPv6, 7), Scheduler: "mh", Flags: ipvs.FlagMHPort},
				destination("[2001:db8::2]:0", ipvs.Destination{Forward: ipvs.Tunnel, Tunnel: ipvs.TunnelOptions{Type: ipvs.TunnelGUE, Port: 6080}}),
				destination("[2001:db8::3]:0", ipvs.Destination{Forward: ipvs.Tunnel, Tunnel: ipvs.TunnelOptions{Type: ipvs.TunnelGRE}})),
			Service{
				Key: "FWM 7 IPv6", Protocol: "FWM", FWMark: 7, Family: "ipv6", Scheduler: "mh", Flags: []string{"mh-port"}, Stats: wantStats,
				RealServers: []RealServer{server("[2001:db8::2]:0", "Tunnel", "gue:6080"), server("[2001:db8::3]:0", "Tunnel", "gre")},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, TableService(tt.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
