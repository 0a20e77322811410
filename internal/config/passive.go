package config

import (
	"math/bits"

	"github.com/lbd-project/lbd/ipvs"
)

// passiveStateBits is how many bits ct_state_mask needs for passive: one more, for a
// connection that waits for its first answer.
const passiveStateBits = minStateBits + 1

// parsePassive reads passive; off where it is empty.
func (p *parser) parsePassive(n *node) Passive {
	if n.isNull() {
		return Passive{}
	}
	var d Passive
	var maxHoldAt *node
	set := func(k *key, v *node) {
		switch k.name {
		case "window":
			d.Window, _ = p.duration(k, v)
		case "failures":
			i, _ := p.integer(k, v)
			d.Failures = uint32(i)
		case "ratio":
			i, _ := p.integer(k, v)
			d.Ratio = int(i)
		case "hold":
			d.Hold, _ = p.duration(k, v)
		case "max_hold":
			d.MaxHold, _ = p.duration(k, v)
			maxHoldAt = v
		case "max_ejected":
			i, _ := p.integer(k, v)
			d.MaxEjected = int(i)
		default:
			panic(unhandled(k))
		}
	}
	defaults(passiveObject, set)
	maxHoldAt = nil
	before := len(p.errs)
	if !p.object(n, passiveObject, set) || len(p.errs) > before {
		return Passive{}
	}
	if d.MaxHold < d.Hold {
		if maxHoldAt != nil {
			p.errorf(maxHoldAt, "max_hold: %v is less than hold %v", d.MaxHold, d.Hold)
		}
		d.MaxHold = d.Hold
	}
	return d
}

// passive sets passive, of a service whose real servers are known. What is one of
// the defaults is for the services that can.
func (p *parser) passive(d *serviceDraft, svc *VirtualService) {
	at := d.policy.passiveAt
	why := ""
	switch {
	case svc.FWMark == 0 && svc.Protocol == ipvs.SCTP:
		why = "how associations of SCTP begin is not seen"
	case svc.FWMark == 0 && svc.Address.Port() == 0:
		why = "with port 0 clients choose the port, and one that is closed would count as a failure"
	case svc.Flags&ipvs.FlagOnePacket != 0:
		why = "with one_packet there are no connections to watch"
	default:
		for rs := range svc.Servers() {
			if rs.Forward != ipvs.Masq {
				why = "answers are seen with forwarding masq alone"
			}
		}
	}
	switch {
	case why != "" && at != nil:
		p.errorf(at, "passive: %s", why)
	case why != "":
		p.without("passive", svc, why)
	default:
		svc.Passive = d.policy.passive
		p.refuse(EngineKernel, orNode(at, d.at), "passive: only the userspace engine sees how connections begin")
		if m := p.userspace.CTStateMask; m != 0 && bits.OnesCount32(m) < passiveStateBits {
			p.refuse(EngineUserspace, orNode(at, d.at), "passive: userspace.ct_state_mask %#08x has too few bits: want at least %d", m, passiveStateBits)
		}
	}
}
