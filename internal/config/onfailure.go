package config

import (
	"fmt"

	"github.com/lbd-project/lbd/ipvs"
)

// onFailure sets what a failure does to a real server, and why; notes which sysctls
// that needs, and warns where a choice does harm.
func (p *parser) onFailure(d *serverDraft, svc *VirtualService, rs *RealServer) {
	rs.OnFailure, rs.OnFailureReason = d.onFailure, "as the file says"
	if d.onFailure == OnFailureAuto {
		rs.OnFailure, rs.OnFailureReason = p.auto(svc)
	}
	persistent := svc.Flags&ipvs.FlagPersistent != 0
	if persistent {
		// Without it no drain would end while a client comes back.
		p.need(sysctlExpireTemplate, svc, "")
	}
	if rs.OnFailure == OnFailureRemove {
		p.need(sysctlExpireNodest, svc, "removes failed real servers: the packets of their old connections would go nowhere until they time out")
		return
	}
	if persistent {
		p.need(sysctlExpireTemplate, svc, "is persistent and quiesces failed real servers: their clients would stay on them")
	}
	switch at := d.onFailureAt; {
	case at == nil:
	case stuck(svc):
		p.warnOnce(at, "on_failure: quiesce with scheduler %s and no fallback flag: the clients of a failed real server are refused", svc.Scheduler)
	case svc.Protocol == ipvs.UDP:
		p.warnOnce(at, "on_failure: quiesce with protocol udp: a client that goes on sending stays on a failed real server")
	}
}

// auto returns what auto means for a service, and why. The kernel knows no other
// way to end what a real server has than to delete it, and whether weight 0 keeps
// its persistent clients is one setting for the whole namespace.
func (p *parser) auto(svc *VirtualService) (OnFailure, string) {
	switch {
	case svc.FWMark == 0 && svc.Protocol == ipvs.UDP:
		return OnFailureRemove, "auto: at weight 0 it would keep the UDP clients that go on sending"
	case stuck(svc):
		return OnFailureRemove, fmt.Sprintf("auto: scheduler %s would refuse its clients at weight 0", svc.Scheduler)
	case svc.Flags&ipvs.FlagPersistent == 0 && svc.FWMark != 0:
		return OnFailureQuiesce, "auto: its open connections may go on, as may UDP flows"
	case svc.Flags&ipvs.FlagPersistent == 0:
		return OnFailureQuiesce, "auto: its open connections may go on"
	case p.templatesStay:
		return OnFailureRemove, "auto: at weight 0 it would keep its persistent clients, as expire_quiescent_template is 0"
	}
	return OnFailureQuiesce, "auto: its open connections may go on; expire_quiescent_template is 1, so that its persistent clients leave"
}

// stuck says whether a real server of weight 0 keeps the clients that its hash
// gives it. The flags of sh and mh have the same bits.
func stuck(svc *VirtualService) bool {
	return hashes(svc.Scheduler) && svc.Flags&ipvs.FlagSHFallback == 0
}

// need notes that a service needs a sysctl to be 1, and what harm it does
// otherwise; empty for none.
func (p *parser) need(sysctl string, svc *VirtualService, why string) {
	if first, ok := p.needs[sysctl]; !ok || first.why == "" {
		p.needs[sysctl] = need{svc.Line, why}
	}
}

// warnOnce warns unless the last warning is about the same place: each real
// server of a service would repeat it.
func (p *parser) warnOnce(n *node, format string, args ...any) {
	if k := len(p.warnings); k > 0 && p.warnings[k-1].Line == n.line && p.warnings[k-1].Col == n.col {
		return
	}
	p.warnf(n, format, args...)
}
