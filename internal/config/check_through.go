package config

import (
	"fmt"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/ipvs"
)

// maxThrough is how long an answer may take on the way through a service.
const maxThrough = time.Minute

// checkThrough refuses what a check through the service cannot have.
func (p *parser) checkThrough(n *node, d *checkDraft) {
	if !d.through {
		return
	}
	for _, k := range []struct {
		name  string
		given bool
	}{
		{"address", d.address.IsValid()},
		{"interface", d.via.Interface != ""},
		{"mark", d.via.Mark != 0},
		{"netns", d.via.NetNS != ""},
	} {
		if k.given {
			p.errorf(d.toAt, "to: service: its packets go as those of clients do: without %s", k.name)
		}
	}
	if d.timing.Timeout > maxThrough {
		p.errorf(orNode(d.timeoutAt, n), "timeout: want at most %s with to: service, got %s", duration(maxThrough), duration(d.timing.Timeout))
	}
	// A real server without the address says nothing.
	if d.check.kind == checkUDP && !d.wantsReply() {
		p.errorf(d.toAt, "to: service: needs require_reply: true, or expect or min_reply without it, as silence is good otherwise")
	}
}

// through returns the way of a check's packets through the service, or why there is
// none.
func (ps *probes) through(c *check) (t healthcheck.Through, problem string) {
	switch d, svc := ps.server, ps.service; {
	case d.forward == ipvs.Masq:
		return t, "needs forwarding: route or tunnel: with masq the real server never sees the service's address"
	case svc.FWMark != 0:
		return t, "a service by fwmark has no address of its own"
	case d.address == svc.Address.Addr():
		return t, "the real server has no address but the service's: it needs no to: service"
	case c.via.Source == svc.Address.Addr():
		return t, "not with the service's address as source: no real server answers to an address of its own"
	case d.forward == ipvs.Tunnel && d.tunnel.Type != ipvs.TunnelIPIP:
		return t, fmt.Sprintf("not through a tunnel of type %s", d.tunnel.Type)
	case ipvs.FamilyOf(d.address) != svc.Family:
		return t, fmt.Sprintf("not in a tunnel to an %s real server of an %s service", ipvs.FamilyOf(d.address), svc.Family)
	}
	return healthcheck.Through{Service: ps.service.Address.Addr().Unmap(), Tunnel: ps.server.forward == ipvs.Tunnel}, ""
}
