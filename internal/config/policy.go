package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// policyDraft is the policies of a virtual service while its keys are read. A
// position is nil where the value is a default.
type policyDraft struct {
	slowStart     time.Duration
	slowStartAt   *node
	failOpenBelow int
	quorum        quorumDraft
	backup        *node
	passive       Passive
	passiveAt     *node
}

// forget makes what is set a default.
func (d *policyDraft) forget() { d.slowStartAt, d.quorum.at, d.passiveAt = nil, nil, nil }

// quorumDraft is a quorum while its keys are read.
type quorumDraft struct {
	Quorum
	// at is where the file gives it; upAt, hysteresisAt and onDownAt are its keys.
	at, upAt, hysteresisAt, onDownAt *node
}

// parseQuorum reads quorum.
func (p *parser) parseQuorum(n *node) quorumDraft {
	var d quorumDraft
	set := func(k *key, v *node) {
		switch k.name {
		case "up":
			i, _ := p.integer(k, v)
			d.Up, d.upAt = uint32(i), v
		case "hysteresis":
			i, _ := p.integer(k, v)
			d.Hysteresis, d.hysteresisAt = uint32(i), v
		case "on_up":
			d.OnUp = p.arguments(k, v)
		case "on_down":
			d.OnDown, d.onDownAt = p.arguments(k, v), v
		default:
			panic(unhandled(k))
		}
	}
	defaults(quorumObject, set)
	d.upAt, d.hysteresisAt = nil, nil
	p.object(n, quorumObject, set)
	d.at = n
	return d
}

// policies sets the policies of a service whose real servers are known.
func (p *parser) policies(d *serviceDraft, svc *VirtualService) {
	svc.FailOpenBelow = d.policy.failOpenBelow
	svc.Quorum = d.policy.quorum.Quorum
	p.slowStart(d, svc)
	if d.policy.backup != nil {
		p.backup(d, svc)
	}
	if d.policy.passive.On() {
		p.passive(d, svc)
	}
}

// unfit is a key of defaults with the services that cannot have it.
type unfit struct {
	at *node
	// named are the first of them, with the reason.
	named []string
	count int
}

// without notes that a service cannot have what the defaults say.
func (p *parser) without(key string, svc *VirtualService, why string) {
	u := p.unfit[key]
	if u.count++; len(u.named) < 3 {
		u.named = append(u.named, fmt.Sprintf("%s (%s)", svc.Name, why))
	}
	p.unfit[key] = u
}

// warnUnfit warns of each key of defaults that does nothing for some services.
func (p *parser) warnUnfit() {
	for key, u := range p.unfit {
		if u.count == 0 {
			continue
		}
		what := "1 virtual service goes"
		if u.count > 1 {
			what = fmt.Sprintf("%d virtual services go", u.count)
		}
		if more := u.count - len(u.named); more > 0 {
			u.named = append(u.named, fmt.Sprintf("and %d more", more))
		}
		p.warnf(u.at, "%s: %s without: %s", key, what, strings.Join(u.named, ", "))
	}
}

// slowStart sets the slow start. One of the defaults is for the schedulers that
// can.
func (p *parser) slowStart(d *serviceDraft, svc *VirtualService) {
	switch at := d.policy.slowStartAt; {
	case slices.Contains(slowStartSchedulers, string(d.scheduler)):
		svc.SlowStart = d.policy.slowStart
	case d.policy.slowStart == 0 || d.scheduler == "":
	case at != nil:
		p.errorf(at, "slow_start: scheduler %s %s: want %s", d.scheduler, whyNoSlowStart(d.scheduler), oneOf(slowStartSchedulers))
	default:
		p.without("slow_start", svc, fmt.Sprintf("scheduler %s %s", d.scheduler, whyNoSlowStart(d.scheduler)))
	}
}

// slowStartSchedulers give a real server a share of new connections in proportion
// to its weight, or as if it were that fast: what slow start relies on.
var slowStartSchedulers = []string{"wlc", "sed", "wrr", "swrr", "wlc-fair"}

func whyNoSlowStart(s ipvs.Scheduler) string {
	switch s {
	case "rr", "lc", "random":
		return "does not look at the size of the weight"
	case "nq":
		return "takes an idle real server whatever its weight"
	case "sh", "dh", "mh", "ring":
		return "would send clients to another real server at each step"
	case "lblc", "lblcr":
		return "keeps an address with the real server that it has"
	case "fo", "ovf":
		return "goes by the order of the weights"
	case "twos", "wrandom", "p2c":
		return "leaves it to chance how many connections a small weight gets"
	case "least-active", "least-time":
		return "measures how fast a real server is, and spares a cold one by itself"
	}
	return "may not look at the size of the weight"
}

// backup reads the backup servers.
func (p *parser) backup(d *serviceDraft, svc *VirtualService) {
	svc.Backup = p.serverList(d.policy.backup, "backup", d, svc)
	if len(svc.Backup) == 0 {
		return
	}
	checked := func(rs RealServer) bool { return len(rs.Probes) > 0 }
	if len(svc.RealServers) > 0 && !slices.ContainsFunc(svc.RealServers, checked) {
		p.warnf(d.policy.backup, "backup: no real server has a check: only what operators do lets the backup servers in")
	}
	// Who uses both likely takes one for the other.
	if at := d.policy.quorum.onDownAt; len(svc.Quorum.OnDown) > 0 {
		p.warnf(orNode(at, d.policy.backup), "quorum: on_down with backup servers: if the command takes the address away, no client reaches them")
	}
}

// checkQuorum refuses a quorum that a service without errors cannot reach. One of 1 is that of who has
// not thought of it: a service that an operator quiesced as a whole is legal.
func (p *parser) checkQuorum(d *serviceDraft, svc *VirtualService) {
	q := &d.policy.quorum
	var sum uint64
	for i := range svc.RealServers {
		sum += uint64(svc.RealServers[i].Weight)
	}
	up, hysteresis := uint64(q.Up), uint64(q.Hysteresis)
	// A value of the defaults is wrong where it meets the service.
	at := func(key *node) *node {
		if q.at == nil {
			return d.at
		}
		return orNode(key, q.at)
	}
	switch {
	case up > sum && (up > 1 || hysteresis > 0):
		p.errorf(at(q.upAt), "quorum: up is %d, but the weights of all real servers together are %d", up, sum)
	case up+hysteresis > sum && hysteresis > 0:
		p.errorf(at(q.hysteresisAt), "quorum: once lost it would stay so: up + hysteresis is %d, but the weights of all real servers together are %d", up+hysteresis, sum)
	case hysteresis >= up && hysteresis > 0:
		p.warnf(at(q.hysteresisAt), "quorum: a hysteresis of %d with up %d: the quorum is lost only when no real server is left", hysteresis, up)
	}
}
