package reconcile

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/ipvs"
)

func TestChangeString(t *testing.T) {
	web := service("192.0.2.10:80")
	a := destination("10.0.0.1:80", 3)
	sh := web
	sh.Scheduler, sh.Flags = "sh", ipvs.FlagPersistent|ipvs.FlagSHFallback|ipvs.FlagSHPort
	sh.Persistence = ipvs.Persistence{Timeout: 5 * time.Minute, Engine: "sip",
		Netmask: ipvs.NetmaskV4(netip.MustParseAddr("255.255.0.0"))}
	v6 := ipvs.Service{ServiceKey: ipvs.MarkService(ipvs.IPv6, 7), Scheduler: "rr"}
	v6Wide := v6
	v6Wide.Persistence.Netmask = ipvs.NetmaskV6(64)
	gue := destination("10.0.0.1:80", 5)
	gue.Forward = ipvs.Tunnel
	gue.Tunnel = ipvs.TunnelOptions{Type: ipvs.TunnelGUE, Port: 6080, Checksum: ipvs.ChecksumRemote}
	limited := a
	limited.UpperThreshold, limited.LowerThreshold = 100, 50
	odd := web
	odd.Flags = ipvs.FlagOnePacket | ipvs.FlagSched1 | 0x100

	for _, tt := range []struct {
		change Change
		want   string
	}{
		{Change{Op: ipvs.Op{Kind: ipvs.OpAddService, Service: web}, Name: "web"},
			"add service web (TCP 192.0.2.10:80): scheduler wlc"},
		{Change{Op: ipvs.Op{Kind: ipvs.OpAddService, Service: sh}},
			"add service TCP 192.0.2.10:80: scheduler sh, flags sh-fallback+sh-port, persistence 5m0s, netmask 255.255.0.0, persistence engine sip"},
		{Change{Op: ipvs.Op{Kind: ipvs.OpUpdateService, Service: sh}, ServiceBefore: web},
			"update service TCP 192.0.2.10:80: scheduler wlc -> sh (refuses new connections for an instant), flags none -> sh-fallback+sh-port, persistence off -> 5m0s, netmask 255.255.255.255 -> 255.255.0.0, persistence engine none -> sip"},
		{Change{Op: ipvs.Op{Kind: ipvs.OpUpdateService, Service: odd}, ServiceBefore: web},
			"update service TCP 192.0.2.10:80: flags none -> one-packet+flag-1+0x100"},
		{Change{Op: ipvs.Op{Kind: ipvs.OpUpdateService, Service: v6Wide}, ServiceBefore: v6},
			"update service FWM 7 IPv6: netmask /128 -> /64"},
		{Change{Op: ipvs.Op{Kind: ipvs.OpDeleteService, Service: web}, ServiceBefore: web},
			"delete service TCP 192.0.2.10:80"},
		{Change{Op: ipvs.Op{Kind: ipvs.OpAddDestination, Service: web, Destination: a}, Name: "web"},
			"add destination 10.0.0.1:80 of web (TCP 192.0.2.10:80): weight 3, forwarding Masq"},
		{Change{Op: ipvs.Op{Kind: ipvs.OpAddDestination, Service: web, Destination: limited}},
			"add destination 10.0.0.1:80 of TCP 192.0.2.10:80: weight 3, forwarding Masq, upper threshold 100, lower threshold 50"},
		{Change{Op: ipvs.Op{Kind: ipvs.OpUpdateDestination, Service: web, Destination: gue}, DestinationBefore: a},
			"update destination 10.0.0.1:80 of TCP 192.0.2.10:80: weight 3 -> 5, forwarding Masq -> Tunnel gue:6080 remcsum"},
		{Change{Op: ipvs.Op{Kind: ipvs.OpDeleteDestination, Service: web, Destination: a}, DestinationBefore: a},
			"delete destination 10.0.0.1:80 of TCP 192.0.2.10:80"},
	} {
		if diff := cmp.Diff(tt.want, tt.change.String()); diff != "" {
			t.Errorf("String (-want +got):\n%s", diff)
		}
	}
}

func TestPlanCountsConnections(t *testing.T) {
	web, gone := service("192.0.2.10:80"), service("192.0.2.11:80")
	a, b := destination("10.0.0.1:80", 1), destination("10.0.0.2:80", 1)
	actual := []ipvs.TableEntry{entry(web, a, b), entry(gone, a, b)}
	for i := range actual {
		actual[i].Destinations[0].Conns = ipvs.Conns{Active: 1, Inactive: 2, Persistent: 3}
		actual[i].Destinations[1].Conns = ipvs.Conns{Active: 10, Inactive: 20, Persistent: 30}
	}
	webRR := web
	webRR.Scheduler = "rr"
	a.Weight = 0
	var got []ipvs.Conns
	for _, c := range Plan(Desired{Services: []DesiredService{wantService(webRR, a)}, Owned: owned(gone)}, actual) {
		got = append(got, c.Conns)
	}
	all := ipvs.Conns{Active: 11, Inactive: 22, Persistent: 33}
	want := []ipvs.Conns{
		all,                                     // edit of web
		{Active: 1, Inactive: 2, Persistent: 3}, // a quiesced
		{Active: 10, Inactive: 20, Persistent: 30}, // b deleted
		all, // gone deleted
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("connections of the plan (-want +got):\n%s", diff)
	}
}
