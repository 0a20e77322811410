package ruleset

import (
	"net/netip"
	"testing"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// TestNetnsSCTPRoute sends an association's packets by direct routing.
func TestNetnsSCTPRoute(t *testing.T) {
	l := newRouteLab(t, Options{FailOpen: true})
	s := routed()
	s.Services[0].Key.Protocol = ipvs.SCTP
	l.apply(s)
	d := l.serve(to(1))
	nft(t, l.rulesOf(l.servers[1]), `table inet other { counter arrived {}
		chain in { type filter hook prerouting priority -300; sctp dport 80 counter name arrived drop; }
	}`)
	client, vip := openSCTP(t, l.client), netip.MustParseAddrPort(routeAddresses[0])
	client.send(1001, vip, 0, initiate(sctpInit, 9))
	l.waitCounter(l.servers[1], "arrived", 1)
	const from = "198.51.100.2:1001"
	l.waitFlow(from, func(f Flow) bool { return f.Mark == mark2 && f.Expires <= synTimeout })
	client.send(1001, vip, 7, []byte{chunkHeartbeat, 0, 0, 12, 0, 1, 0, 8, 1, 2, 3, 4})
	l.waitCounter(l.servers[1], "arrived", 2)
	l.waitFlow(from, func(f Flow) bool { return f.Expires > 800*time.Second })
	// A first packet again is the daemon's to decide.
	client.send(1001, vip, 0, initiate(sctpInit, 9))
	l.waitCounter(l.servers[1], "arrived", 3)
	if n := len(d.packets()); n != 2 {
		t.Errorf("want two packets in the queue, got %d", n)
	}
}
