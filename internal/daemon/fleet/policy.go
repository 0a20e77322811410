package fleet

import (
	"fmt"

	"github.com/lbd-project/lbd/internal/config"
)

// policies are the decisions about a service as a whole.
type policies struct {
	quorum QuorumState
	// backup says that the backup servers replace the others, failOpen that
	// health is ignored.
	backup, failOpen bool
	// figures say what they follow from.
	figures struct{ quorum, failOpen string }
}

// policies decides about the service and notes what changed.
func (d *decider) policies(vs *config.VirtualService) policies {
	var p policies
	was, known := d.Memory.Services[vs.ServiceKey]
	if watched(vs) {
		p.quorum, p.figures.quorum = d.quorum(vs, was.Quorum)
		p.backup = p.quorum == QuorumLost && d.backupTakes()
		if vs.FailOpenBelow > 0 && !p.backup {
			p.failOpen, p.figures.failOpen = d.failOpen(vs)
		}
	}
	is := ServiceMemory{Quorum: p.quorum, Backup: p.backup, FailOpen: p.failOpen}
	if is != (ServiceMemory{}) {
		d.fleet.Memory.Services[vs.ServiceKey] = is
	}
	alert := func(kind AlertKind, reason string) {
		d.fleet.Alerts = append(d.fleet.Alerts, Alert{Kind: kind, Service: vs.Name, Key: vs.ServiceKey, First: !known, Reason: reason})
	}
	if is.Quorum != was.Quorum {
		switch is.Quorum {
		case QuorumHeld:
			alert(AlertQuorumHeld, p.figures.quorum)
		case QuorumLost:
			alert(AlertQuorumLost, p.figures.quorum)
		}
	}
	edge := func(is, was bool, begin, end AlertKind, reason string) {
		switch {
		case is && !was:
			alert(begin, reason)
		case was && !is:
			alert(end, reason)
		}
	}
	edge(is.Backup, was.Backup, AlertBackupIn, AlertBackupOut, p.figures.quorum)
	edge(is.FailOpen, was.FailOpen, AlertFailOpenBegin, AlertFailOpenEnd, p.figures.failOpen)
	return p
}

// watched reports whether something depends on how much of a service is well. Of
// the others it would be known anyway that a real server is well.
func watched(vs *config.VirtualService) bool {
	q := &vs.Quorum
	return q.Up > 1 || q.Hysteresis > 0 || len(q.OnUp)+len(q.OnDown)+len(vs.Backup) > 0 || vs.FailOpenBelow > 0
}

// quorum decides whether the service has its quorum, from what it was. At the
// first time up decides alone, and not before the checks have: what they may find
// counts as held, and as nothing yet.
func (d *decider) quorum(vs *config.VirtualService, was QuorumState) (QuorumState, string) {
	up, hysteresis := uint64(max(vs.Quorum.Up, 1)), uint64(vs.Quorum.Hysteresis)
	var sum, proven uint64
	for i := range d.servers {
		c := &d.servers[i]
		if c.backup || c.down() || c.drained || c.disabled {
			continue
		}
		sum += uint64(c.counted)
		if c.health.state != Pending {
			proven += uint64(c.counted)
		}
	}
	need := up
	switch was {
	case QuorumHeld:
		need = max(1, up-min(up, hysteresis))
	case QuorumLost:
		need = up + hysteresis
	}
	figures := fmt.Sprintf("weight %d, wanted %d", sum, need)
	switch {
	case sum < need:
		return QuorumLost, figures
	case was == QuorumNone && proven < need:
		return QuorumNone, figures
	}
	return QuorumHeld, figures
}

// backupTakes reports whether a backup server could take connections.
func (d *decider) backupTakes() bool {
	for i := range d.servers {
		if c := &d.servers[i]; c.backup && !c.down() && !c.disabled && c.weight > 0 {
			return true
		}
	}
	return false
}

// failOpen reports whether so little of the weight is healthy that health is
// better ignored. What operators took out is not counted.
func (d *decider) failOpen(vs *config.VirtualService) (bool, string) {
	var all, healthy uint64
	for i := range d.servers {
		c := &d.servers[i]
		if c.backup || c.drained || c.disabled {
			continue
		}
		all += uint64(c.counted)
		if !c.down() {
			healthy += uint64(c.counted)
		}
	}
	figures := fmt.Sprintf("weight %d of %d is healthy, fail_open_below is %d %%", healthy, all, vs.FailOpenBelow)
	return healthy*100 < all*uint64(vs.FailOpenBelow), figures
}

// gate decides whether a server takes connections.
func (p policies) gate(c *candidate) Gate {
	switch {
	case c.disabled:
		return GateDisabled
	case c.down() && (c.backup || !p.failOpen):
		return GateFailed
	case c.backup != p.backup:
		return GateStandby
	}
	return GateOpen
}

// reason says what the policies of the service do to a server; empty for nothing.
func (p policies) reason(c *candidate) string {
	switch {
	case c.gate == GateStandby && c.backup && p.quorum == QuorumLost:
		return "stands by: no backup server can take connections"
	case c.gate == GateStandby && c.backup:
		return "stands by until the quorum is lost: " + p.figures.quorum
	case c.gate == GateStandby:
		return "replaced by the backup servers, the quorum is lost: " + p.figures.quorum
	case c.gate == GateOpen && c.down():
		return "health is ignored: " + p.figures.failOpen
	case c.gate == GateOpen && c.backup:
		return "replaces the others, the quorum is lost: " + p.figures.quorum
	}
	return ""
}
